"""What the processes of a node are given at their start: the context, its parts, and the messages `start`."""
