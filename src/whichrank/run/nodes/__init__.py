"""One job on many nodes: a watcher on each of them, and one of these watchers leads."""
