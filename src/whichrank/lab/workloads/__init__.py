"""Small, real training programs. They are copied beside the job's entry point, as a user's own code would lie there.

A workload is a module with `train(rank)`. At its points (`rank.at("batch", batch)`) a fault may look, change a value
or do something of its own; without a fault every point gives back what it was given.
"""
