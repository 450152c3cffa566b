"""Rules on training code: they judge a program that was read, not the evidence of a job."""

JUDGES = "code"
