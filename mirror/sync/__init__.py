"""How a replica that has joined later, or comes back, gets the messages of the queue."""
