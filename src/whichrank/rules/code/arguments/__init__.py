"""One operation, called with arguments that ranks don't agree on."""
