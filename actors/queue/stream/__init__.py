"""The role of the replica of a stream."""
