"""One thin module per verb; a file here named `<verb>.py` is the verb `<verb>`.

Its docstring's first line is what `--help` says of it, and `command` is its click command.
Files whose name starts with "_" are shared by verbs and are no verbs themselves.
"""
