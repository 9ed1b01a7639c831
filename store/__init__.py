"""What is on disk, and what stands in for it in memory. No actors, no sockets, no clock of its own."""
