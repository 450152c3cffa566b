"""One clock for all hosts and all logs."""
