"""The commands that only read from a node: listings, checks, reports, messages, and what a node logs."""
