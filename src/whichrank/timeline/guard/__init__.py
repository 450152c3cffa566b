"""Records of the guards of all ranks, compared: what should have been equal and was not, on which rank, since when."""
