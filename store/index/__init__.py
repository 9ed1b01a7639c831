"""The index of a queue: which messages are in it, kept in segments and united with the journal."""
