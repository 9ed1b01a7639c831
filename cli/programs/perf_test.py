"""`warren perf-test`: puts load on an AMQP broker, and reports rates and latencies. The options are PerfTest's."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any

import click

from ..failure import EX_UNAVAILABLE, EX_USAGE, CommandFailure

FLAGS = ("persistent", "mandatory")


@click.command("perf-test", context_settings={"help_option_names": ["-?", "--help"]})
@click.option("-h", "--uri", "uris", multiple=True, help="URI of the broker; give several to take them in turn.")
@click.option("-H", "--uris", "uri_list", help="URIs, separated by commas.")
@click.option("-d", "--id", "test_id", help="Name of the test in its output.  [default: random]")
@click.option("-x", "--producers", type=click.IntRange(min=0), default=1, show_default=True, help="Producers.")
@click.option("-y", "--consumers", type=click.IntRange(min=0), default=1, show_default=True, help="Consumers.")
@click.option(
    "-X",
    "--producer-channel-count",
    "producer_channels",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Channels of each producer, on one connection.",
)
@click.option(
    "-Y",
    "--consumer-channel-count",
    "consumer_channels",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Channels of each consumer, on one connection.",
)
@click.option("-u", "--queue", "queues", multiple=True, help="Queue; several are consumed in turn.")
@click.option("-qa", "--queue-args", help="Arguments of the queues: name=value,name=value.")
@click.option("-qq", "--quorum-queue", is_flag=True, help="Declare quorum queues, and publish persistent messages.")
@click.option("-ad", "--auto-delete", type=bool, default=True, show_default=True, help="Declare auto-delete queues.")
@click.option("-p", "--predeclared", is_flag=True, help="Use what exists, and declare nothing.")
@click.option("-e", "--exchange", default="direct", show_default=True, help="Exchange; '' is the default exchange.")
@click.option("-t", "--type", "exchange_type", default="direct", show_default=True, help="Type of the exchange.")
@click.option("-k", "--routing-key", help="Routing key.  [default: random; for the default exchange, the queue]")
@click.option("-s", "--size", type=click.IntRange(min=0), default=0, help="Bytes of a body, at least 12.")
@click.option("-f", "--flag", "flags", multiple=True, type=click.Choice(FLAGS), help="Set this flag on each message.")
@click.option("-c", "--confirm", type=click.IntRange(min=1), help="Confirms that a channel may wait for.")
@click.option("-r", "--rate", type=click.FloatRange(min=0), help="Messages a second of each producer.")
@click.option(
    "-R", "--consumer-rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second of each consumer."
)
@click.option("-q", "--qos", type=click.IntRange(0, 65535), default=0, help="Prefetch of each consumer; 0 is no limit.")
@click.option("-Q", "--global-qos", type=click.IntRange(0, 65535), default=0, help="Prefetch of each channel.")
@click.option("-a", "--autoack", "auto_ack", is_flag=True, help="Consume without acknowledgements.")
@click.option(
    "-A",
    "--multi-ack-every",
    type=click.IntRange(min=1),
    default=1,
    help="How many deliveries to acknowledge together.",
)
@click.option(
    "-L", "--consumer-latency", type=click.IntRange(min=0), default=0, help="Microseconds of work on each message."
)
@click.option("-z", "--time", "seconds", type=click.FloatRange(min=0), default=0.0, help="Seconds; 0 is no limit.")
@click.option("-C", "--pmessages", type=click.IntRange(min=0), default=0, help="Messages of each producer.")
@click.option("-D", "--cmessages", type=click.IntRange(min=0), default=0, help="Messages of each consumer.")
@click.option(
    "-i", "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between lines."
)
@click.option("-ms", "--use-millis", "use_wall_clock", is_flag=True, help="Compare clocks of different machines.")
@click.option("--json", "json_file", type=click.File("w"), help="Write the result as JSON to this file; - is stdout.")
@click.option("--quiet", is_flag=True, help="Print the summary only.")
def perf_test(json_file: Any, quiet: bool, **given: Any) -> None:
    """Put load on an AMQP 0-9-1 broker, and report rates and latencies.

    Producers publish to an exchange, to which the test binds its queue, and consumers consume from it. Without limits
    all go as fast as they can until Ctrl-C. The options are those of RabbitMQ's PerfTest.

    \b
    Examples:
      warren perf-test -z 10                         one producer, one consumer, ten seconds
      warren perf-test -x 2 -y 4 -u work -q 100 -f persistent -c 500 -s 1000
      warren perf-test -r 1000 -z 30 --json -        the latency at 1,000 messages a second
      warren perf-test -x 0 -y 1 -u work -p          consumers only, in a process of their own

    Exit codes: 0 when the test has ended, 64 for wrong options, 69 if the broker cannot be reached or refuses.
    """
    from ...perf_test.connection import ConnectionFailed
    from ...perf_test.report import as_json, interval_line, summary
    from ...perf_test.runner import Runner

    options = _options(**given)
    report = sys.stderr if json_file is not None and json_file.name == "<stdout>" else sys.stdout
    try:
        runner = Runner(options, f"perf-test-{secrets.token_hex(4)}")
    except ConnectionFailed as error:
        raise CommandFailure(str(error), EX_UNAVAILABLE) from error
    failure = None
    try:
        runner.run(
            lambda counts, length, elapsed: (
                None if quiet else click.echo(interval_line(options, counts, length, elapsed), file=report)
            )
        )
    except KeyboardInterrupt:
        click.echo("", file=report)
    except ConnectionFailed as error:
        failure = error
    finally:
        runner.close()
    click.echo(summary(options, runner.statistics, runner.processor_seconds), file=report)
    if json_file is not None:
        json.dump(as_json(options, runner.statistics, runner.processor_seconds), json_file, indent=2)
        json_file.write("\n")
    if failure is not None:
        raise CommandFailure(str(failure), EX_UNAVAILABLE) from failure


def _options(
    uris: tuple[str, ...],
    uri_list: str | None,
    test_id: str | None,
    queues: tuple[str, ...],
    queue_args: str | None,
    quorum_queue: bool,
    auto_delete: bool,
    flags: tuple[str, ...],
    consumer_latency: int,
    seconds: float,
    pmessages: int,
    cmessages: int,
    **given: Any,
) -> Any:
    from ...perf_test.connection import split_uri
    from ...perf_test.options import DEFAULT_URI, Options

    all_uris = (*uris, *(uri_list.split(",") if uri_list else ()))
    for uri in all_uris:
        try:
            split_uri(uri)
        except ValueError as error:
            raise CommandFailure(str(error), EX_USAGE) from error
    if not given["producers"] and not given["consumers"]:
        raise CommandFailure("there is nothing to do without producers and consumers (-x, -y)", EX_USAGE)
    if given["predeclared"] and not queues and given["consumers"]:
        raise CommandFailure("consumers of something predeclared need the name of a queue (-u)", EX_USAGE)
    if quorum_queue and not queues:
        raise CommandFailure("a quorum queue needs a name (-u)", EX_USAGE)
    arguments = _arguments(queue_args)
    if quorum_queue:
        arguments["x-queue-type"] = "quorum"
    return Options(
        uris=all_uris or (DEFAULT_URI,),
        test_id=test_id or f"test-{secrets.token_hex(3)}",
        queues=queues,
        queue_arguments=arguments,
        auto_delete=auto_delete and not quorum_queue,
        persistent="persistent" in flags or quorum_queue,
        mandatory="mandatory" in flags,
        consumer_latency=consumer_latency / 1e6,
        time=seconds,
        producer_messages=pmessages,
        consumer_messages=cmessages,
        **given,
    )


def _arguments(text: str | None) -> dict[str, int | str | bool]:
    found: dict[str, int | str | bool] = {}
    for pair in text.split(",") if text else ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandFailure(f"--queue-args: '{pair}' is not of the form name=value", EX_USAGE)
        if value in ("true", "false"):
            found[name] = value == "true"
        else:
            found[name] = int(value) if value.lstrip("-").isdigit() else value
    return found
