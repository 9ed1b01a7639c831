"""The process that alone writes the routing table."""
