"""What runs inside a rank: standard library and torch only, nothing at import time that can fail a job."""
