"""The one error of the protocol: it carries what a `close` needs, and how the peer is to learn of it.

Whoever finds the fault raises :class:`AmqpError`; the channel or the connection process turns it into frames at one
place (AB-38, AB-49 to AB-51).
"""

from .constants import CONNECTION_ERRORS, REPLY_NAMES, SHORTSTR_MAX


class AmqpError(Exception):
    """A fault with a reply code (AB-49).

    `text` is the explanation without the code's name. `class_id` and `method_id` name the method that failed,
    0 and 0 if there is none (AB-51). The flags say how a connection ends; they are False for most errors:

    - `drop`: close the socket, send no frame.
    - `slow_drop`: send no frame, keep silent for 3 s, then close the socket.
    - `fatal`: send `connection.close`, but read no more: the input is out of step. Close the socket after 3 s.
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
        """The reply code's name, `NOT_FOUND`."""
        return REPLY_NAMES.get(self.code, str(self.code))

    @property
    def reply_text(self) -> str:
        """`NAME - text`, at most 255 octets of UTF-8 (AB-50); the name alone if there is no text."""
        return cut_reply_text(f"{self.name} - {self.text}" if self.text else self.name)

    @property
    def is_connection_error(self) -> bool:
        """Whether the code ends the connection rather than the channel (AB-49)."""
        return self.code in CONNECTION_ERRORS

    def __str__(self) -> str:
        return f"{self.code} {self.reply_text}"

    def __reduce__(self):  # type: ignore[no-untyped-def]
        # Errors travel between processes; keyword-only arguments are not in `args`.
        flags = {"drop": self.drop, "slow_drop": self.slow_drop, "fatal": self.fatal}
        return (type(self), self.args, flags)


def cut_reply_text(text: str) -> str:
    """`text` itself if it fits a short string, else its first 252 octets and `...` (AB-50)."""
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) <= SHORTSTR_MAX:
        return text
    # A character cut in two would make the close frame itself malformed, so the cut moves to its start.
    end = SHORTSTR_MAX - 3
    while octets[end] & 0xC0 == 0x80 and end > SHORTSTR_MAX - 7:
        end -= 1
    return octets[:end].decode("utf-8", "surrogateescape") + "..."


_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\"}


def octets_text(data: bytes, as_string: bool = True) -> str:
    """`data` as RabbitMQ prints it in reply texts: `<<1,2,206>>`, or `<<"text">>` if all of it is printable.

    `as_string` False gives numbers always, as in `cannot decode <<0,0>>`.
    """
    if as_string and data and all(32 <= octet < 127 or octet in _ESCAPES for octet in data):
        return '<<"' + "".join(_ESCAPES.get(octet) or chr(octet) for octet in data) + '">>'
    return "<<" + ",".join(map(str, data)) + ">>"
