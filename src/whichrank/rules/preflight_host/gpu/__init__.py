"""GPUs, their links and their libraries."""
