"""The job before it runs: N simulated ranks on one machine, and what their calls tell when they are compared."""
