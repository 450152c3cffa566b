"""Connections between the hosts of a job."""
