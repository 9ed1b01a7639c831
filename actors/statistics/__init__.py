"""What a node counts and notes for statistics. There is no process here: the node's processes share these objects."""
