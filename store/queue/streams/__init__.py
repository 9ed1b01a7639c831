"""The backing queues of streams, in memory and on the disk."""
