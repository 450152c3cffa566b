"""One rule per file, in folders named as the families of the taxonomy. A rule is pure."""
