"""Interfaces, RDMA ports and names."""
