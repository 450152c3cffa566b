"""One thin module per verb, in folders by phase of a job; `before/lint.py` is the verb `lint`.

Its docstring's first line is what `--help` says of it, and `command` is its click command.
Files whose name starts with "_" belong to a verb beside them. `options/` and `terminal/` hold what verbs share.
"""
