"""The exchange types, and how each finds the bindings that match a message."""
