"""`Indexer`: finds messages of indexed queues by key and time."""
