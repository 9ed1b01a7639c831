"""The greeting of two nodes on one connection, without a socket and without a clock (QP-150, CL-7 to CL-9).

    connector                              acceptor
    HELLO      who I am, nonce        ->
                                      <-   CHALLENGE  who I am, nonce, proof
    AUTH       proof                  ->
                                      <-   OK

Both sides prove that they know the same secret, which is never sent: a proof is an HMAC under a key that is derived
from the secret. It covers the role of the side that proves and the headers of all frames before it, so that nobody
between the two can change a word of the greeting, send one side's proof back to it, or use a recorded one again. The
acceptor proves first: a connector proves nothing to a stranger who listens on the node's address.

Each side then decides by itself whether it admits the other (`admission`). A connector that refuses sends its reason in
AUTH; an acceptor that refuses sends it instead of OK. So both sides can log why there is no link.
"""

from __future__ import annotations

import hmac
import json
from typing import Any, NamedTuple

from .admission import BAD_SECRET, CONFLICT, MALFORMED, LinkIdentity, Refusal, refusal
from .encoding.frames import (
    AUTH,
    HELLO,
    JSON_TYPE,
    MAX_GREETING_FRAME,
    RESPONSE,
    LinkFrameError,
    LinkFrameReader,
    json_header,
    shown,
)
from .encoding.frames import json_frame as frame_of
from .encoding.registry import LANE_NAMES

#: Bytes of a nonce and of a session's id.
NONCE_BYTES, SESSION_BYTES = 32, 16

_ACCEPTOR, _CONNECTOR = b"warren acceptor", b"warren connector"


def derived_key(secret: bytes) -> bytes:
    """The key of the proofs: HKDF-SHA-256 of the secret."""
    extracted = hmac.digest(b"warren links", secret, "sha256")
    return hmac.digest(extracted, b"proof of the greeting\x01", "sha256")


def proof(key: bytes, role: bytes, headers: list[bytes]) -> bytes:
    """What the side with this role sends to prove that it knows the secret and has seen these headers."""
    parts = [role, *headers]
    return hmac.digest(key, b"".join([len(part).to_bytes(4, "big") + part for part in parts]), "sha256")


class Greeted(NamedTuple):
    """The greeting is over, and both sides admit each other."""

    peer: LinkIdentity
    lane: str
    session: str
    version: int


class GreetingStep(NamedTuple):
    """What follows from input: bytes to send, and perhaps the end of the greeting."""

    reply: bytes = b""
    greeted: Greeted | None = None
    #: Why there is no link. The connection is closed behind `reply`.
    refused: Refusal | None = None


def _common_version(one: LinkIdentity, other: LinkIdentity) -> int:
    return min(one.versions[1], other.versions[1])


class _Side:
    """What both sides of a greeting have."""

    def __init__(self, own: LinkIdentity, key: bytes, nonce: bytes) -> None:
        self.own = own
        self.key = key
        self.nonce = nonce
        self.reader = LinkFrameReader(MAX_GREETING_FRAME)
        #: The identity that the other side has sent; None before it has.
        self.peer: LinkIdentity | None = None
        #: The first bytes that came, for the error text if they are no greeting.
        self._first = b""
        #: The headers of all frames so far.
        self._headers: list[bytes] = []

    def feed(self, data: bytes) -> GreetingStep:
        """Take input. After a step that ends the greeting, `reader` has what came behind it."""
        if len(self._first) < 32:
            self._first += data[:32]
        self.reader.feed(data)
        try:
            found = self.reader.next()
            if found is None:
                return GreetingStep()
            if found.type != JSON_TYPE:
                raise LinkFrameError("a frame that is not one of the greeting")
            header = found.header
            fields = json_header(header)
            ext = fields.get("extFields")
            remark = fields.get("remark")
            if type(ext) is not dict or type(fields.get("code")) is not int or type(remark) not in (str, type(None)):
                raise LinkFrameError(f"a greeting without code and fields: {shown(header)}")
            return self._step(fields["code"], remark or "", ext, header, found.body)
        except LinkFrameError as error:
            return GreetingStep(refused=Refusal(MALFORMED, not_a_greeting(self._first, str(error))))

    def _step(self, code: int, remark: str, ext: dict[str, Any], header: bytes, body: bytes) -> GreetingStep:
        raise NotImplementedError

    def _frame(self, code: int, flag: int, ext: dict[str, Any], role: bytes = b"", remark: str = "") -> bytes:
        header = {"code": code, "language": "PYTHON", "version": 1, "opaque": 0, "flag": flag, "remark": remark or None}
        header["extFields"] = ext
        encoded = json.dumps(header, separators=(",", ":")).encode("ascii")
        self._headers.append(encoded)
        return frame_of(header, proof(self.key, role, self._headers) if role else b"")

    def _is_proof(self, role: bytes, given: bytes) -> bool:
        return hmac.compare_digest(given, proof(self.key, role, self._headers))

    def _ext(self) -> dict[str, Any]:
        return {**self.own.to_json(), "nonce": self.nonce.hex()}


class Connector(_Side):
    """The side that has connected. `expected` is the node that it wants to reach."""

    def __init__(self, own: LinkIdentity, key: bytes, nonce: bytes, expected: str, lane: str, session: str) -> None:
        super().__init__(own, key, nonce)
        self._expected = expected
        self._lane, self._session = lane, session

    def hello(self) -> bytes:
        """The first bytes to send."""
        ext = {**self._ext(), "lane": self._lane, "workers": [0, 0], "session": self._session}
        return self._frame(HELLO, 0, ext)

    def _step(self, code: int, remark: str, ext: dict[str, Any], header: bytes, body: bytes) -> GreetingStep:
        if self.peer is not None:
            if code:
                return GreetingStep(refused=Refusal(code, remark or f"refused with code {code}", by_peer=True))
            return GreetingStep(
                greeted=Greeted(self.peer, self._lane, self._session, _common_version(self.own, self.peer))
            )
        if code:
            return GreetingStep(refused=Refusal(code, remark or f"refused with code {code}", by_peer=True))
        peer = LinkIdentity.from_json(ext)
        self._headers.append(header)
        if not self._is_proof(_ACCEPTOR, body):
            # An AUTH without a proof only shows the acceptor that the secrets differ.
            reply = self._frame(AUTH, 0, {})
            return GreetingStep(reply, refused=Refusal(BAD_SECRET, f"{peer.node} has another secret: {SAME_SECRET}"))
        self.peer = peer
        refused = refusal(self.own, peer, self._expected)
        reply = self._frame(AUTH, 0, {}, _CONNECTOR, "" if refused is None else refused.sentence)
        return GreetingStep(reply, refused=refused)


class Acceptor(_Side):
    """The side that was connected to."""

    def __init__(self, own: LinkIdentity, key: bytes, nonce: bytes) -> None:
        super().__init__(own, key, nonce)
        self._lane = self._session = ""

    def _step(self, code: int, remark: str, ext: dict[str, Any], header: bytes, body: bytes) -> GreetingStep:
        if self.peer is None:
            return self._hello(code, ext, header)
        self._headers.append(header)
        if code != AUTH:
            raise LinkFrameError(f"code {code} instead of the proof")
        if not self._is_proof(_CONNECTOR, body):
            sentence = f"{self.own.node} has another secret than the node that calls itself {self.peer.node}"
            return self._refuse(Refusal(BAD_SECRET, f"{sentence}: {SAME_SECRET}"))
        if remark:
            return GreetingStep(refused=Refusal(CONFLICT, remark, by_peer=True))
        refused = refusal(self.own, self.peer)
        if refused is not None:
            return self._refuse(refused)
        greeted = Greeted(self.peer, self._lane, self._session, _common_version(self.own, self.peer))
        return GreetingStep(self._frame(0, RESPONSE, {}), greeted=greeted)

    def _hello(self, code: int, ext: dict[str, Any], header: bytes) -> GreetingStep:
        lane, session = ext.get("lane"), ext.get("session")
        if code != HELLO or lane not in LANE_NAMES or type(session) is not str or len(session) != 2 * SESSION_BYTES:
            raise LinkFrameError(f"no greeting: {shown(header)}")
        self.peer = LinkIdentity.from_json(ext)
        self._lane, self._session = lane, session
        self._headers.append(header)
        return GreetingStep(self._frame(0, RESPONSE, self._ext(), _ACCEPTOR))

    def _refuse(self, refused: Refusal) -> GreetingStep:
        return GreetingStep(self._frame(refused.code, RESPONSE, {}, remark=refused.sentence), refused=refused)


#: The way out of a wrong secret.
SAME_SECRET = (
    "all nodes of a cluster need the same file cluster_cookie_file, or the same WARREN_COOKIE; copy it from a node of "
    "the cluster and start this node again"
)


def not_a_greeting(first: bytes, error: str) -> str:
    """What came instead of a greeting, for the log."""
    if first[:2] == b"\x16\x03":
        return "a TLS handshake came, and this node's links have no TLS: set cluster_tls_* on all nodes or on none"
    if first.startswith(b"AMQP"):
        return "an AMQP client came; clients connect to `port`, not to `cluster_port`"
    if first.split(b" ")[0] in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT"):
        return "an HTTP request came; only nodes of the cluster connect to `cluster_port`"
    return f"what came is no greeting of a warren node: {error}"
