"""Metadata of several nodes: the commands of all of them in one order, on the disk of each."""
