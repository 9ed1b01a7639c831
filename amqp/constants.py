"""The numbers and names of AMQP 0-9-1 that more than one module needs (AB-1, AB-41, AB-49)."""

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE

#: Bytes of a frame besides its payload: type, channel, payload length, and the end octet.
FRAME_OVERHEAD = 8
#: Bytes; the smallest frame_max that may be negotiated, and the limit until tune-ok.
FRAME_MIN_SIZE = 4096
#: Bytes; the hard limit, which `max_message_size` cannot raise.
MAX_BODY_SIZE = 536_870_912
#: The most bytes of a short string.
SHORTSTR_MAX = 255

CLASS_BASIC = 60

REPLY_NAMES = {
    200: "REPLY_SUCCESS",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}

REPLY_SUCCESS = 200
CONTENT_TOO_LARGE = 311
NO_ROUTE = 312
NO_CONSUMERS = 313
CONNECTION_FORCED = 320
INVALID_PATH = 402
ACCESS_REFUSED = 403
NOT_FOUND = 404
RESOURCE_LOCKED = 405
PRECONDITION_FAILED = 406
FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
RESOURCE_ERROR = 506
NOT_ALLOWED = 530
NOT_IMPLEMENTED = 540
INTERNAL_ERROR = 541

#: The reply codes that end the connection; all others end the channel (AB-49).
CONNECTION_ERRORS = frozenset({320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541})
