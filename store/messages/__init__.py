"""Messages as the store holds them: contents, runs, ids, and their layout on disk."""
