"""What expressions of a shell come to: sums, the output of functions and of commands in front of a pipe, variables of
functions and of the rounds of a loop."""
