"""The master of a queue: the role of the replica that serves its clients."""
