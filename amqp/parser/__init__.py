"""The frame parser of a connection: bytes in, events out (`reader`), and what spares it decoding most messages.

`shapes` recognises a message like the one before, `header_patterns` a header of a known shape, and `skimmer` finds the
properties that decide. `large_content` receives a large body in place.
"""
