"""Queues and messages on disk, and in memory. No processes, no sockets, and no clock of its own."""
