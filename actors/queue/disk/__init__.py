"""What a queue writes to the disk and reads from it, on a node with a data directory."""
