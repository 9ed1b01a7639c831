"""What a client said, fit for a log that has one line per event and may be written in any encoding."""


def one_line(text: str) -> str:
    """`text` with everything that is not printable (line ends, control characters, octets that are not UTF-8) as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
