"""One thin module per verb, in folders by phase of a job; `before/lint.py` is the verb `lint`.

Its docstring's first line is what `--help` says of it, and `command` is its click command.
Files whose name starts with "_" belong to a verb beside them. `options/` and `terminal/` hold what verbs share.
"""

import gc

# Modules and evidence are many objects without cycles: looking for cycles in them costs a fifth of a short run. Said
# here, before the first of them is loaded.
gc.set_threshold(200_000, 50, 50)
