"""The variable queue: a backing queue with its backlog on disk, and the parts that move its messages."""
