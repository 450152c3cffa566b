"""One module per format: bytes in, records out."""

FIRST = "flight_recorder"
"""Asked before the others are loaded: what it claims is nothing else. A job of many ranks has little but dumps."""
