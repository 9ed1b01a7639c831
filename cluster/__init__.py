"""Several nodes that are one broker: links between them, who is a member, and metadata that all of them agree on."""
