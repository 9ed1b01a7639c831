"""Arguments of queues, exchanges and consumers: their meaning, checks, and whether two declarations agree."""
