"""Causes of slowness that are nobody's fault: how the work is arranged."""
