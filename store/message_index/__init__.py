"""The message index: which messages indexed queues have had, by key and time, in an LMDB environment."""
