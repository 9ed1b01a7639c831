"""The interpreter of scenarios about greetings: commands, and what follows from each.

A scenario is a text of blocks. The first line of a block is the command after `> `; the lines under it are what the
command leads to. `#` begins a comment.

    node a [called=x id=x incarnation=x secret=x cluster=x versions=1-2 features=x,y required=x members=a:id,b:id
            removed=x]
    greet a b [expected=b] [lane=data]      a connects to b: the frames that they send, and how the greeting ends
    relay a b HELLO node=c                  as greet, but an attacker between the two changes a field of a frame
    replay a b                              an attacker sends b what a has sent b in the last greeting
    reflect a                               an attacker who connects to a sends a's own proof back to it
"""

from __future__ import annotations

import json
import struct

from warren.cluster.links.admission import ClusterMembership, LinkIdentity
from warren.cluster.links.encoding.frames import LinkFrameReader, json_header
from warren.cluster.links.greeting import Acceptor, Connector, derived_key
from warren.tests.conversations import interpreted

NAMES = {"HELLO": 0, "CHALLENGE": 1, "AUTH": 2, "OK": 3}


def played(text: str) -> str:
    """Play the commands of the scenario, and return it with the lines that really follow from each."""
    return interpreted(text, World().perform)


class World:
    def __init__(self):
        self.nodes = {}
        self.nonces = 0
        #: The frames that the connector sent in the last greeting.
        self.sent = []

    def perform(self, words):
        command, *rest = words
        plain = [word for word in rest if "=" not in word]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        return getattr(self, command)(*plain, **options)

    def node(self, name, **options):
        versions = options.get("versions", "1-1").split("-")
        listed = [word for word in options.get("features", "").split(",") if word]
        members = dict(pair.split(":") for pair in options.get("members", "").split(",") if pair)
        self.nodes[name] = (
            LinkIdentity(
                f"{options.get('called', name)}@h",
                options.get("id", f"id-{name}"),
                options.get("incarnation", "1"),
                options.get("cluster"),
                (int(versions[0]), int(versions[1])),
                frozenset(listed),
                {"settings": {"net_ticktime": float(options["net_ticktime"])}} if "net_ticktime" in options else {},
                ClusterMembership(
                    options.get("cluster"),
                    {f"{member}@h": node_id for member, node_id in members.items()},
                    required=frozenset(word for word in options.get("required", "").split(",") if word),
                ),
            ),
            derived_key(options.get("secret", "the same secret").encode()),
        )
        return []

    def nonce(self):
        self.nonces += 1
        return self.nonces.to_bytes(32, "big")

    def connector(self, name, expected, lane):
        identity, key = self.nodes[name]
        return Connector(identity, key, self.nonce(), expected, lane, "5e" * 16)

    def acceptor(self, name):
        return Acceptor(*self.nodes[name], self.nonce())

    def greet(self, a, b, expected=None, lane="control"):
        return self.relay(a, b, expected=f"{expected or b}@h", lane=lane)

    def relay(self, a, b, frame="", expected=None, lane="control", **changes):
        lines = []
        sides = [self.connector(a, expected or f"{b}@h", lane), self.acceptor(b)]
        self.sent = []
        data, sender = sides[0].hello(), 0
        number = 0
        while data:
            lines.append(f"{(a, b)[sender]}: {shown(data)}")
            if NAMES.get(frame) == number:
                data = changed(data, changes)
                lines.append(f"   somebody makes it: {shown(data)}")
            if sender == 0:
                self.sent.append(data)
            number += 1
            receiver = 1 - sender
            step = sides[receiver].feed(data)
            data, sender = step.reply, receiver
            if step.refused is not None:
                who = "is refused" if step.refused.by_peer else "refuses"
                lines.append(f"{(a, b)[receiver]} {who}: {step.refused.code} {step.refused.sentence}")
                if receiver == 1 or not data:
                    lines += [f"{b}: {shown(data)}"] if data else []
                    if receiver == 1 and data:
                        last = sides[0].feed(data)
                        lines.append(f"{a} is refused: {last.refused.code} {last.refused.sentence}")
                    break
            if step.greeted is not None:
                greeted = step.greeted
                agreed = f"lane {greeted.lane}, version {greeted.version}"
                lines.append(f"{(a, b)[receiver]} is linked to {greeted.peer.node}, {agreed}")
        return lines

    def replay(self, a, b):
        lines = []
        acceptor = self.acceptor(b)
        for data in self.sent:
            lines.append(f"{a} again: {shown(data)}")
            step = acceptor.feed(data)
            if step.refused is not None:
                lines.append(f"{b} refuses: {step.refused.code} {step.refused.sentence}")
        return lines

    def reflect(self, a):
        hello = self.connector(a, "x@h", "control").hello()
        acceptor = self.acceptor(a)
        challenge = acceptor.feed(changed(hello, {"node": "x@h", "id": "id-x"})).reply
        proof = challenge[-32:]
        auth = json.dumps({"code": 2, "flag": 0, "remark": None, "extFields": {}}).encode()
        step = acceptor.feed(struct.pack(">II", 4 + len(auth) + len(proof), len(auth)) + auth + proof)
        return [f"{a} refuses: {step.refused.code} {step.refused.sentence}"]


def parsed(data):
    reader = LinkFrameReader(100_000)
    reader.feed(data)
    found = reader.next()
    return json_header(found.header), found.body


def shown(data):
    header, proof = parsed(data)
    ext = header["extFields"]
    name = (
        {1: "HELLO", 2: "AUTH"}.get(header["code"]) if not header["flag"] else "CHALLENGE" if "nonce" in ext else "OK"
    )
    if header["flag"] and header["code"]:
        name = f"code {header['code']}"
    words = [name]
    if ext:
        words += [f"node={ext['node']}", f"versions={ext['versions'][0]}-{ext['versions'][1]}"]
        words += [f"cluster={ext['cluster']}"] if ext["cluster"] else []
        words += [f"lane={ext['lane']}"] if "lane" in ext else []
    words += ["with a proof"] if proof else []
    words += ["and a reason"] if header["remark"] else []
    return " ".join(words)


def changed(data, changes):
    """The frame with other values in these fields and its old proof."""
    header, proof = parsed(data)
    for key, value in changes.items():
        header["extFields"][key] = [int(part) for part in value.split("-")] if key == "versions" else value
    encoded = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(encoded) + len(proof), len(encoded)) + encoded + proof
