"""First response: the evidence of a job that runs on many nodes, taken now, without anything installed there."""
