"""Queues and messages on disk, and in memory. The package has no processes, no sockets, and no clock of its own."""
