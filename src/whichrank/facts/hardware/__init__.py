"""What is known of GPUs and of the links between them."""
