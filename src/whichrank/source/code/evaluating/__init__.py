"""Values of expressions: what is known of them on each rank."""
