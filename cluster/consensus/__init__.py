"""Raft as values: what a node decides, without a disk, a socket, a clock or randomness of its own (`core.py`)."""
