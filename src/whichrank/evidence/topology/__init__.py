"""Topology as programs print it: NCCL's dumps, and the cables of an InfiniBand fabric."""
