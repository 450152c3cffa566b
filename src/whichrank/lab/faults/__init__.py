"""One way to break a job per file; `whichrank.model.contracts.Fault` says what such a file has. Files are discovered.

A fault file is also copied into the job and loaded by every rank, where its `inside` runs. There the package is
not at hand: it imports the standard library alone, and takes torch from the rank that it is given.
"""
