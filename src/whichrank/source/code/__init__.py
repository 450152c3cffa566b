"""Training programs as syntax trees: who calls what, which values differ between ranks, what each path communicates."""
