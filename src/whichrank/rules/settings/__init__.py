"""Rules of `env lint`: they judge settings of launch files and live processes, not the evidence of a job."""

JUDGES = "settings"
