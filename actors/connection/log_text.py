"""Text that clients send, made fit for a log that has one line per event and may be written in any encoding."""


def one_line(text: str) -> str:
    """`text` with escapes for line ends, control characters and bytes that are not UTF-8."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
