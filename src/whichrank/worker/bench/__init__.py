"""The benchmark as it runs inside a rank."""
