"""Rules of preflight about several hosts and the ways between them: an inspection in, findings out."""

JUDGES = "inspection"
