"""One module per format: bytes in, records out."""
