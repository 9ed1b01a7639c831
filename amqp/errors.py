"""The one exception for protocol errors. It carries the fields of a close method and how to end the connection.

Any code that finds a fault raises :class:`AmqpError`. The channel process and the connection process each turn it into
frames in one place (AB-38, AB-49 to AB-51).
"""

from .constants import CONNECTION_ERRORS, REPLY_NAMES, SHORTSTR_MAX


class AmqpError(Exception):
    """A fault with a reply code (AB-49).

    `text` is the explanation without the code's name. `class_id` and `method_id` identify the method that failed; they
    are 0 if no method did (AB-51). The flags, False for most errors, choose another end of the connection:

    - `drop`: close the socket without sending a frame.
    - `slow_drop`: send no frame, and close the socket after 3 s.
    - `fatal`: send connection.close, but read no more, because the frame boundaries are lost; close the socket after
      3 s.
    """

    def __init__(
        self,
        code: int,
        text: str = "",
        class_id: int = 0,
        method_id: int = 0,
        *,
        drop: bool = False,
        slow_drop: bool = False,
        fatal: bool = False,
    ) -> None:
        super().__init__(code, text, class_id, method_id)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
        self.drop = drop
        self.slow_drop = slow_drop
        self.fatal = fatal

    @property
    def name(self) -> str:
        """The name of the reply code, such as `NOT_FOUND`."""
        return REPLY_NAMES.get(self.code, str(self.code))

    @property
    def reply_text(self) -> str:
        """`NAME - text`, cut to 255 bytes of UTF-8 (AB-50); the name alone if there is no text."""
        return cut_reply_text(f"{self.name} - {self.text}" if self.text else self.name)

    @property
    def is_connection_error(self) -> bool:
        """Whether the code ends the connection rather than the channel (AB-49)."""
        return self.code in CONNECTION_ERRORS

    def __str__(self) -> str:
        return f"{self.code} {self.reply_text}"

    def __reduce__(self):  # type: ignore[no-untyped-def]
        # Errors are pickled when they travel between processes, and `args` has no keyword-only arguments.
        flags = {"drop": self.drop, "slow_drop": self.slow_drop, "fatal": self.fatal}
        return (type(self), self.args, flags)


def cut_reply_text(text: str) -> str:
    """`text` itself if it fits a short string, else its first 252 bytes and `...` (AB-50)."""
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) <= SHORTSTR_MAX:
        return text
    # Half a character would make the close frame itself malformed, so the cut moves to the start of the character.
    end = SHORTSTR_MAX - 3
    while encoded[end] & 0xC0 == 0x80 and end > SHORTSTR_MAX - 7:
        end -= 1
    return encoded[:end].decode("utf-8", "surrogateescape") + "..."


_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\"}


def binary_text(data: bytes, as_string: bool = True) -> str:
    """`data` as an Erlang binary, as RabbitMQ prints it in reply texts: `<<1,2,206>>`, or `<<"text">>` if printable.

    With `as_string` False it is always printed as numbers, as in `cannot decode <<0,0>>`.
    """
    if as_string and data and all(32 <= byte < 127 or byte in _ESCAPES for byte in data):
        return '<<"' + "".join(_ESCAPES.get(byte) or chr(byte) for byte in data) + '">>'
    return "<<" + ",".join(map(str, data)) + ">>"
