"""Text that several readers share: chunks, lines, prefixes, words."""
