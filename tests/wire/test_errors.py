"""Reply codes and texts of protocol errors, and their pickling (AB-49, AB-50)."""

import pickle

import pytest

from warren.amqp.errors import AmqpError, binary_text


def test_reply_text_is_name_and_explanation() -> None:
    """AB-50: `NAME - explanation`."""
    assert AmqpError(404, "no queue 'q' in vhost '/'").reply_text == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_reply_text_without_explanation_is_the_name() -> None:
    """AB-38: an internal failure is `INTERNAL_ERROR` alone."""
    assert AmqpError(541).reply_text == "INTERNAL_ERROR"


@pytest.mark.parametrize("length", [242, 243])
def test_reply_text_of_255_bytes_is_kept_and_a_longer_one_is_cut(length: int) -> None:
    """AB-50: a text of 255 bytes passes; of a longer one 252 bytes and `...` remain."""
    text = AmqpError(404, "x" * length).reply_text  # `NOT_FOUND - ` is 12 bytes
    if length == 243:
        assert text == "NOT_FOUND - " + "x" * 243
        text = AmqpError(404, "x" * (length + 1)).reply_text
        assert text == "NOT_FOUND - " + "x" * 240 + "..."
    assert len(text.encode()) <= 255


@pytest.mark.parametrize("padding", range(4))
def test_reply_text_is_never_cut_inside_a_character(padding: int) -> None:
    """AB-50: a cut text is valid UTF-8 of at most 255 bytes."""
    encoded = AmqpError(404, "x" * padding + "\N{SNOWMAN}" * 200).reply_text.encode()
    assert 253 <= len(encoded) <= 255
    assert encoded.endswith(b"...")


def test_reply_text_with_undecodable_bytes_can_be_cut() -> None:
    """AB-50: a queue name that is not UTF-8 may be part of a reply text."""
    assert len(AmqpError(404, "\udc80" * 400).reply_text.encode("utf-8", "surrogateescape")) <= 255


@pytest.mark.parametrize("code", [320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541])
def test_connection_errors(code: int) -> None:
    """AB-49: these codes end the connection."""
    assert AmqpError(code).is_connection_error


@pytest.mark.parametrize("code", [311, 312, 313, 403, 404, 405, 406])
def test_channel_errors(code: int) -> None:
    """AB-49: these codes end the channel only."""
    assert not AmqpError(code).is_connection_error


def test_pickling_keeps_all_fields_of_an_error() -> None:
    """An error that a process answers with is raised again in the process that asked."""
    copy = pickle.loads(pickle.dumps(AmqpError(501, "text", 60, 40, fatal=True)))
    assert (copy.code, copy.text, copy.class_id, copy.method_id) == (501, "text", 60, 40)
    assert copy.fatal
    assert not copy.drop


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "<<>>"),
        (b"hello", '<<"hello">>'),
        (b"\x00\xce", "<<0,206>>"),
        (b'a"\\\n', '<<"a\\"\\\\\\n">>'),
    ],
)
def test_bytes_are_printed_as_rabbitmq_prints_them(data: bytes, text: str) -> None:
    """AB-38: reply texts of frame errors contain bytes of the frame."""
    assert binary_text(data) == text


def test_bytes_can_be_printed_as_numbers_only() -> None:
    """AB-38: `cannot decode` prints no strings."""
    assert binary_text(b"hi", as_string=False) == "<<104,105>>"
