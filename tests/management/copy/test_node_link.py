"""Over TCP the management process uses a connection only if the other end proves that it knows the node's secret."""

import asyncio

import pytest

from warren.actors.control import place
from warren.actors.control.frames import FRAME_MAX, PROTOCOL, FrameBuffer, frame
from warren.actors.control.proof import CHALLENGE_BYTES, proof
from warren.management.copy.node_link import ControlConnection, NodeUnreachable

CHALLENGE = bytes(CHALLENGE_BYTES)


def proof_with(secret):
    """The answer of a server with this secret."""
    return lambda theirs: {"proof": proof(secret, "node", CHALLENGE, theirs["challenge"])}


def opened(directory, challenge, answer):
    """Open a connection to a server that greets with this challenge and answers the client's proof. Returns after the
    server has seen the end of the connection.
    """

    async def run():
        ended = asyncio.Event()

        async def serve(reader, writer):
            writer.write(frame({"hello": PROTOCOL, "node": "warren@localhost", "challenge": challenge}))
            received = FrameBuffer(FRAME_MAX)
            while data := await reader.read(4096):
                received.feed(data)
                message = received.next()
                if message is not None:
                    writer.write(frame(answer(message)))
            writer.close()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            place.publish(str(directory), place.new_run_file("warren@localhost", host=host, port=port))
            try:
                (await ControlConnection.open(str(directory))).close()
            finally:
                await asyncio.wait_for(ended.wait(), 60.0)

    asyncio.run(run())


def test_a_server_with_the_secret_is_accepted(tmp_path):
    secret = place.cookie(str(tmp_path))
    opened(tmp_path, CHALLENGE, proof_with(secret))


@pytest.mark.parametrize(
    ("challenge", "answer", "reason"),
    [
        (CHALLENGE, proof_with(b"another secret than that"), "it has another secret"),
        (CHALLENGE, lambda theirs: {}, "it has another secret"),
        (CHALLENGE, lambda theirs: {"proof": theirs["proof"]}, "it has another secret"),
        (None, lambda theirs: {}, "it does not ask for the secret"),
        ("text", lambda theirs: {}, "it does not ask for the secret"),
    ],
    ids=["another_secret", "no_proof", "clients_own_proof", "no_challenge", "no_bytes"],
)
def test_another_server_is_refused_and_the_socket_closed(tmp_path, challenge, answer, reason):
    place.cookie(str(tmp_path))
    with pytest.raises(NodeUnreachable, match=reason):
        opened(tmp_path, challenge, answer)
