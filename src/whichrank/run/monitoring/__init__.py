"""Tell others about a watched job: metrics, notifications."""
