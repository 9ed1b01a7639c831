"""The consumers of a queue, what each may hold, and which of them gets the next message."""
