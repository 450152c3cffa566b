"""The environment variables that NCCL, PyTorch and their neighbours read, and what is known of each."""
