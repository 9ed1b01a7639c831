"""Dead letters: the messages that die in a queue, and their ways to other queues."""
