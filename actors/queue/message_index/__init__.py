"""What an indexed queue reports to the message index, and how messages are read for it."""
