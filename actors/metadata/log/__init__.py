"""The log of commands: the order in which they reach the disk, and how rows are written there."""
