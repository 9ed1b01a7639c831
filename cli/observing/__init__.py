"""The commands that only look: listings, checks, reports, messages, and what a node logs."""
