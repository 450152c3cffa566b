"""The merged stacks of all ranks, one format per file."""
