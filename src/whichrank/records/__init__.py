"""The many, as columns: collective entries, log events, stacks."""
