"""The directories of a broker: layout, locks, metadata, and the order of start and stop."""
