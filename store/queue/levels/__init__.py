"""Backing queues that have others as their levels: priorities and fair lanes."""
