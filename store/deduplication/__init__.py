"""What a queue remembers of the messages that were published to it, so that it keeps each of them once."""
