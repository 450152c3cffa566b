"""Operations that all ranks make, in an order that can't finish."""
