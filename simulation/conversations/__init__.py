"""Conversations: what clients and a machine do, in the order that a file tells, and what follows each time."""
