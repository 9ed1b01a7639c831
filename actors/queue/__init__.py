"""The process of one queue."""
