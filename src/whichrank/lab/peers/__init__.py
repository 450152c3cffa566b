"""Other tools that name a culprit, one file each, scored on the same bundles."""
