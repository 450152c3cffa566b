"""What is measured between two hosts: one sends, the other answers or counts, both are asked."""
