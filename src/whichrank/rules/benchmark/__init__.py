"""Rules about measured collectives: a run of a benchmark in, findings out."""

JUDGES = "bench"
