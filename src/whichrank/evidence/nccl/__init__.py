"""How NCCL's text is taken apart: line prefixes, messages, and files of any size."""
