"""The frame parser of a connection: bytes in, events out (`reader`), and what lets it read most messages without decoding
them: messages like the one before (`shapes`), headers of one shape (`header_patterns`), the properties that decide
(`skimmer`), and large bodies received in place (`large_content`).
"""
