"""The frame parser of a connection: bytes in, events out (`reader`), and how it avoids decoding most messages.

`shapes` recognises a message like the one before, `header_patterns` a header of a known shape, and `skimmer` finds the
properties that decide how a message is handled. `large_content` receives a large body in place.
"""
