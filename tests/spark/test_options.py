"""Options: names in any case, values with units, and errors that name the option and the right form."""

import logging
import pickle

import pytest

from warren.spark.errors import SparkSourceError
from warren.spark.options import BatchOptions, DirectoryOptions, Secret, SinkOptions, StreamOptions, _warn, parse_read
from warren.spark.wire import BrokerConnection


def batch(**given):
    return BatchOptions.parse({"queue": "orders"} | given)


def stream(**given):
    return StreamOptions.parse({"queue": "orders"} | given)


def refusal(call, **given):
    with pytest.raises(SparkSourceError) as caught:
        call(**given)
    assert caught.value.code == "E4"
    return str(caught.value)


def test_names_have_no_case_and_values_have_units():
    options = stream(
        MAXMESSAGESPERTRIGGER="17", maxbytespertrigger="4m", maxTriggerDelay="500ms", deleteoncommit="TRUE"
    )
    assert (options.max_messages_per_trigger, options.max_bytes_per_trigger) == (17, 4 << 20)
    assert (options.max_trigger_delay, options.delete_on_commit) == (0.5, "true")
    assert stream(maxMessagesPerTrigger="none").max_messages_per_trigger is None


def test_an_unknown_name_names_the_nearest():
    assert refusal(stream, maxMesagesPerTrigger="1") == (
        "unknown option 'maxMesagesPerTrigger' of format 'warren'; did you mean 'maxMessagesPerTrigger'?"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxMessagesPerPartition", "0"),
        ("maxMessagesPerPartition", "²"),
        ("maxMessagesPerPartition", "9" * 5000),
        ("blockSize", "1k"),
        ("blockSize", "none"),
        ("startingOffsets", "yesterday"),
        ("startingOffsets", '{"orders": "soon"}'),
        ("failOnDataLoss", "maybe"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "²"),
        ("startingTimestamp", "9" * 5000),
        ("connectTimeout", "soon"),
        ("connectTimeout", "0"),
        ("connectTimeout", "99999999d"),
        ("readMode", "fast"),
        ("bodyFormat", "xml"),
        ("endpointMap", "here"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_fit(name, value):
    text = refusal(batch, **{name: value})
    assert name in text and "give " in text


def test_an_option_of_another_way_of_reading_is_named_as_such():
    text = refusal(lambda **given: parse_read({"queue": "q"} | given, BatchOptions), maxMessagesPerTrigger="1")
    assert text == "option 'maxMessagesPerTrigger' of format 'warren' is for spark.readStream, and has no effect here"
    text = refusal(lambda **given: parse_read({"path": "d"} | given, DirectoryOptions), url="amqp://x")
    assert "spark.read on a broker" in text


def test_options_that_do_not_belong_together():
    assert "one of the options" in refusal(lambda **given: BatchOptions.parse(given))
    assert "not queue and pattern" in refusal(batch, pattern="*")
    assert "bodySchema" in refusal(batch, bodyFormat="json")
    assert "'pattern'" in refusal(batch, skipUnreadable="true")
    assert "not queue and exchange" in refusal(batch, exchange="x", subscription="s")
    assert "belong together" in refusal(lambda **given: BatchOptions.parse(given), exchange="x")
    assert "belong together" in refusal(batch, subscription="s")
    assert "either" in refusal(batch, startingOffsets="latest", startingTimestamp="0")
    assert "deleteSkipped" in refusal(stream, deleteOnCommit="true", startingTimestamp="0")
    assert "'bindingKeys'" in refusal(batch, bindingKeys="a,b")
    assert "deleteSkipped" in refusal(stream, deleteOnCommit="true", startingOffsets="latest")
    assert stream(deleteOnCommit="true", startingOffsets="latest", deleteSkipped="true").delete_skipped


def test_the_url(monkeypatch):
    monkeypatch.delenv("WARREN_PASSWORD", raising=False)
    place = batch(url="amqps://me:p%40ss@a:1/shop,amqps://b/shop").place()
    assert place == ((("a", 1), ("b", 5671)), True, "shop", "me", "p@ss")
    assert batch(url="amqp://h").place().vhost == "/"
    assert batch(url="amqp://h/%2F", endpointMap="h:5672=10.0.0.1:99").place().endpoints == (("10.0.0.1", 99),)
    for wrong in ("http://h", "amqp://h:x/", "amqp://[::1/", "amqp://a/v,amqp://b/w"):
        refusal(batch, url=wrong)


def test_where_the_password_comes_from(monkeypatch, tmp_path):
    url = "amqp://me:inurl@h/"
    monkeypatch.delenv("WARREN_PASSWORD", raising=False)
    assert batch(url=url).place().password == "inurl"
    monkeypatch.setenv("WARREN_PASSWORD", "inenv")
    assert batch(url=url).place().password == "inenv"
    (tmp_path / "p").write_text("infile\n")
    assert batch(url=url, passwordFile=str(tmp_path / "p")).place().password == "infile"
    assert batch(url=url, passwordFile=str(tmp_path / "p"), password="own").place().password == "own"
    (tmp_path / "p").write_bytes(b"\xff")
    assert "passwordFile" in refusal(batch, passwordFile=str(tmp_path / "p"))


def test_options_of_tls_are_for_amqps():
    """An option of TLS beside amqp:// is refused, because its user believes that the connection is encrypted."""
    for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsServerName"):
        assert f"'{name}'" in refusal(batch, **{name: "x"})
        assert batch(url="amqps://h/", **{name: "x"}).place().is_tls


@pytest.mark.parametrize("kind", [BatchOptions, StreamOptions, SinkOptions])
@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"url": "amqp://h/,amqp://me:hidden@h2/"}, "'url'"),
        ({"url": "amqp://me:hidden@h/", "passwordFile": __file__}, "'url'"),
        ({"url": "amqps://h/", "tlsVerify": "none"}, "'tlsVerify'"),
        ({"url": "amqp://guest:guest@h/"}, None),
        ({"url": "amqps://h/", "password": "hidden"}, None),
    ],
)
def test_a_password_that_spark_shows_and_a_broker_that_nobody_checks(caplog, kind, given, option):
    """Both are warnings that name the option, once in a process, and do not contain the password (SP-101, SP-102)."""
    _warn.cache_clear()
    queue = {} if kind is SinkOptions else {"queue": "q"}
    with caplog.at_level(logging.WARNING, "warren.spark"):
        kind.parse({**queue, **given})
        kind.parse({**queue, **given})
    assert [option in record.getMessage() for record in caplog.records] == ([True] if option else [])
    assert "hidden" not in caplog.text


@pytest.mark.parametrize("name", ["tlsCaFile", "tlsCertFile"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_tls_that_cannot_be_used_is_named(tmp_path, name, content):
    """Such a file is a mistake in the options, and not a broker that is away."""
    path = tmp_path / "file.pem"
    if content is not None:
        path.write_text(content)
    given = batch(url="amqps://127.0.0.1:1/", **{name: str(path)})
    assert f"option '{name}'" in refusal(lambda: BrokerConnection(given, "test"))


def test_no_representation_shows_a_password():
    options = batch(url="amqp://me:hidden1@h/", password="hidden2")
    for shown in (repr(options), repr(options.place()), str([options.place()]), repr(Secret("hidden3"))):
        assert "hidden" not in shown
    assert pickle.loads(pickle.dumps(options)).place().password == "hidden2"


def test_errors_keep_their_code_across_processes():
    error = pickle.loads(pickle.dumps(SparkSourceError("E9", "text")))
    assert (error.code, str(error)) == ("E9", "text")


def test_times_are_milliseconds_or_iso_8601_in_utc_or_with_a_zone():
    texts = ("1795305600000", "2026-11-22", "2026-11-22T01:00:00+01:00", "2026-11-22T00:00:00Z")
    assert {batch(startingTimestamp=text).starting_timestamp for text in texts} == {1_795_305_600_000_000}
