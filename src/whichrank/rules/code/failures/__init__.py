"""Exceptions, threads, signals: operations at a moment of one rank's own."""
