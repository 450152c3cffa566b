"""How verbs write to terminals, pipes and files."""
