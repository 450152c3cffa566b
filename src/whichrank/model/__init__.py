"""The words of the domain: data and contracts only."""
