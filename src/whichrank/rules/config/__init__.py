"""Settings that are unknown, ignored, harmful, or different between ranks."""
