"""What a verb does, without its command line: the only place where the rooms meet."""
