#!/usr/bin/env python3
"""warrenadmin: what the HTTP API of a warren or RabbitMQ broker offers, from a shell.

It needs nothing but Python 3.9 or newer, so that it can be copied to any machine:

    curl -O http://broker:15672/cli/warrenadmin && chmod +x warrenadmin
    ./warrenadmin -H broker list queues name messages
    ./warrenadmin -H broker declare queue name=orders arguments='{"x-max-length": 1000}'
    ./warrenadmin -H broker publish routing_key=orders payload=hello

Objects are given as NAME=VALUE; queues and exchanges are durable unless durable=false is given. `arguments`,
`definition`, `properties` and `value` are JSON. The exit code is 0 if the broker did what was asked, 1 if it refused or
cannot be reached, and 2 if the command line is wrong.
"""

from __future__ import annotations

import argparse
import base64
import json
import ssl
import sys
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import quote

Fields = dict[str, Any]

#: Fields whose values are JSON.
JSON_FIELDS = ("arguments", "definition", "properties", "value")


class ObjectKind(NamedTuple):
    """A kind of objects: `path` with the names that it needs, and defaults of the other fields of a declaration."""

    path: str
    defaults: Fields = {}


KINDS = {
    "exchange": ObjectKind("exchanges/{vhost}/{name}", {"type": "direct", "durable": True}),
    "queue": ObjectKind("queues/{vhost}/{name}", {"durable": True}),
    "vhost": ObjectKind("vhosts/{name}"),
    "user": ObjectKind("users/{name}", {"tags": ""}),
    "permission": ObjectKind("permissions/{vhost}/{user}"),
    "parameter": ObjectKind("parameters/{component}/{vhost}/{name}"),
    "policy": ObjectKind("policies/{vhost}/{name}", {"priority": 0, "apply-to": "all"}),
    "operator_policy": ObjectKind("operator-policies/{vhost}/{name}", {"priority": 0, "apply-to": "queues"}),
    "vhost_limit": ObjectKind("vhost-limits/{vhost}/{name}"),
}
#: The end of the path of bindings, and that of each one below it.
BINDING = "bindings/{vhost}/e/{source}/{kind}/{destination}"

LISTS = (
    *("connections", "channels", "consumers", "exchanges", "queues", "bindings", "users", "vhosts", "permissions"),
    *("nodes", "parameters", "policies", "operator_policies", "vhost_limits"),
)
#: Lists of which there is one for each virtual host.
OF_VHOSTS = {"exchanges", "queues", "bindings", "consumers", "policies", "operator_policies", "vhost_limits"}


class AdminRefused(Exception):
    """The broker refused a request, or cannot be reached. The text is for a person."""


class AdminApi:
    """The API of one broker. Its methods raise AdminRefused."""

    def __init__(self, options: argparse.Namespace) -> None:
        scheme = "https" if options.ssl or options.ssl_insecure else "http"
        self._base = f"{scheme}://{options.host}:{options.port}{options.path_prefix}/api/"
        login = base64.b64encode(f"{options.username}:{options.password}".encode()).decode()
        self._headers = {"authorization": f"Basic {login}", "content-type": "application/json"}
        self._timeout = options.request_timeout
        self._context: ssl.SSLContext | None = None
        if scheme == "https":
            self._context = ssl.create_default_context(cafile=options.ssl_ca_cert_file)
            if options.ssl_insecure:
                self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout, context=self._context) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AdminRefused(_refusal(error.code, path, error.read())) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise AdminRefused(f"{self._base} cannot be reached: {reason}") from None
        return json.loads(text) if text else None


def _refusal(status: int, path: str, text: bytes) -> str:
    if status == 401:
        reason = _reason(text)
        return f"Access refused: {path}" + (f" ({reason})" if reason else "")
    if status == 404:
        return f"Not found: {path}"
    return f"{status}: {_reason(text) or path}"


def _reason(text: bytes) -> str:
    try:
        found = json.loads(text)["reason"]
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else json.dumps(found)


def escaped(template: str, fields: Fields) -> str:
    """The path with the names of these fields. Raises SystemExit if one is missing."""
    try:
        return template.format_map({name: quote(str(value), safe="") for name, value in fields.items()})
    except KeyError as error:
        sys.exit(_wrong(f"{error.args[0]}=… is missing"))


def _wrong(text: str) -> int:
    print(f"warrenadmin: {text}; see warrenadmin --help", file=sys.stderr)
    return 2


def fields_of(words: list[str]) -> Fields:
    """The fields that are given as NAME=VALUE. Raises SystemExit for anything else."""
    found: Fields = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            sys.exit(_wrong(f"'{word}' is no NAME=VALUE"))
        try:
            found[name] = json.loads(value) if name in JSON_FIELDS else value
        except ValueError:
            sys.exit(_wrong(f"the value of '{name}' is no JSON: {value}"))
    return found


# -- commands ---


def list_objects(broker: AdminApi, options: argparse.Namespace) -> None:
    kind = _one_of(options.words[:1], LISTS)
    path = kind.replace("_", "-")
    if options.vhost is not None and kind in OF_VHOSTS:
        path += "/" + quote(options.vhost, safe="")
    query = [f"sort={quote(options.sort)}"] if options.sort else []
    if options.sort_reverse:
        query.append("sort_reverse=true")
    show(broker.request("GET", path + ("?" + "&".join(query) if query else "")), options, options.words[1:])


def show_overview(broker: AdminApi, options: argparse.Namespace) -> None:
    _one_of(options.words[:1], ("overview",))
    columns = options.words[1:] or ["rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues"]
    show([broker.request("GET", "overview")], options, columns)


def declare(broker: AdminApi, options: argparse.Namespace) -> None:
    kind, fields = _object(options)
    if kind == "binding":
        fields.setdefault("routing_key", "")
        body = {name: fields[name] for name in ("routing_key", "arguments") if name in fields}
        broker.request("POST", _binding(fields), body)
    else:
        known = KINDS[kind]
        if kind == "queue" and "queue_type" in fields:
            arguments = dict(fields.get("arguments", {}))
            fields["arguments"] = {**arguments, "x-queue-type": fields.pop("queue_type")}
        broker.request("PUT", escaped(known.path, fields), {**known.defaults, **fields})
    say(options, f"{kind} declared")


def delete(broker: AdminApi, options: argparse.Namespace) -> None:
    kind, fields = _object(options)
    if kind == "binding":
        path = _binding(fields) + "/" + quote(fields.get("properties_key", "~"), safe="")
    else:
        path = escaped(KINDS[kind].path, fields)
    broker.request("DELETE", path)
    say(options, f"{kind} deleted")


def close(broker: AdminApi, options: argparse.Namespace) -> None:
    _one_of(options.words[:1], ("connection",))
    broker.request("DELETE", escaped("connections/{name}", fields_of(options.words[1:])))
    say(options, "connection closed")


def purge(broker: AdminApi, options: argparse.Namespace) -> None:
    _one_of(options.words[:1], ("queue",))
    fields = {"vhost": options.vhost or "/", **fields_of(options.words[1:])}
    broker.request("DELETE", escaped("queues/{vhost}/{name}/contents", fields))
    say(options, "queue purged")


def publish(broker: AdminApi, options: argparse.Namespace) -> None:
    fields = {"vhost": options.vhost or "/", "exchange": "amq.default", **fields_of(options.words)}
    if "payload" not in fields:
        fields["payload"] = sys.stdin.read()
    path = escaped("exchanges/{vhost}/{exchange}/publish", fields)
    defaults = {"routing_key": "", "properties": {}, "payload_encoding": "string"}
    found = broker.request("POST", path, {**defaults, **fields})
    say(options, "Message published" if found["routed"] else "Message published but NOT routed")


def get(broker: AdminApi, options: argparse.Namespace) -> None:
    fields = {"vhost": options.vhost or "/", **fields_of(options.words)}
    path = escaped("queues/{vhost}/{queue}/get", fields)
    defaults = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    columns = [
        "routing_key",
        "exchange",
        "message_count",
        "payload",
        "payload_bytes",
        "payload_encoding",
        "redelivered",
    ]
    show(broker.request("POST", path, {**defaults, **fields}), options, columns)


def export(broker: AdminApi, options: argparse.Namespace) -> None:
    (file,) = options.words
    definitions = broker.request("GET", _definitions(options))  # first, so that a refusal leaves an earlier file alone
    with open(file, "w", encoding="utf-8") as written:
        json.dump(definitions, written, indent=2)
    say(options, f"Exported definitions to {file}")


def import_(broker: AdminApi, options: argparse.Namespace) -> None:
    (file,) = options.words
    with open(file, encoding="utf-8") as read:
        broker.request("POST", _definitions(options), json.load(read))
    say(options, f"Imported definitions from {file}")


def _definitions(options: argparse.Namespace) -> str:
    return "definitions" + ("" if options.vhost is None else "/" + quote(options.vhost, safe=""))


def _object(options: argparse.Namespace) -> tuple[str, Fields]:
    kind = _one_of(options.words[:1], (*KINDS, "binding"))
    return kind, {"vhost": options.vhost or "/", **fields_of(options.words[1:])}


def _binding(fields: Fields) -> str:
    kind = "e" if fields.get("destination_type") == "exchange" else "q"
    return escaped(BINDING, {**fields, "kind": kind})


def _one_of(words: list[str], known: tuple[str, ...]) -> str:
    if not words or words[0] not in known:
        sys.exit(_wrong(f"expected one of {', '.join(known)}"))
    return words[0]


COMMANDS = {
    "list": list_objects,
    "show": show_overview,
    "declare": declare,
    "delete": delete,
    "close": close,
    "purge": purge,
    "publish": publish,
    "get": get,
    "export": export,
    "import": import_,
}


# -- output ---


def say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text)


def show(rows: list[Fields], options: argparse.Namespace, columns: list[str]) -> None:
    """Print rows in the chosen format. Without columns a table has the simple fields that the rows have."""
    if options.format in ("raw_json", "pretty_json"):
        print(json.dumps(rows, indent=2 if options.format == "pretty_json" else None))
        return
    columns = columns or _simple_columns(rows)
    cells = [[_text(_field(row, column)) for column in columns] for row in rows]
    if options.format == "tsv":
        for line in (columns, *cells):
            print("\t".join(line))
    elif options.format == "kvp":
        for line in cells:
            print(" ".join(f'{name}="{value}"' for name, value in zip(columns, line)))
    elif options.format == "long":
        width = max(map(len, columns), default=0)
        for line in cells:
            print("\n".join(f"{name:>{width}}: {value}" for name, value in zip(columns, line)) + "\n")
    elif not cells:
        print("No items")
    else:
        widths = [max(map(len, column)) for column in zip(columns, *cells)]
        rule = "+".join("-" * (width + 2) for width in widths)
        print(" | ".join(f"{name:{width}}" for name, width in zip(columns, widths)).join((" ", "")))
        print(rule)
        for line in cells:
            print(" | ".join(f"{value:{width}}" for value, width in zip(line, widths)).join((" ", "")))


def _simple_columns(rows: list[Fields]) -> list[str]:
    first = ("vhost", "name", "source", "destination", "user")
    found = {name: None for row in rows for name, value in row.items() if not isinstance(value, (dict, list))}
    return [*[name for name in first if name in found], *[name for name in found if name not in first]]


def _field(row: Any, column: str) -> Any:
    for name in column.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    # Clients choose names, and a terminal would obey the control characters in them.
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="warrenadmin", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    made.add_argument("command", choices=COMMANDS)
    made.add_argument("words", nargs="*", help="the kind of object and NAME=VALUE, or the columns of a list")
    made.add_argument("--help", "-h", action="help")
    made.add_argument("--host", "-H", default="localhost")
    made.add_argument("--port", "-P", type=int, default=15672)
    made.add_argument("--path-prefix", default="", help="what all paths of the API begin with")
    made.add_argument("--vhost", "-V", help="all virtual hosts for lists, / for objects by default")
    made.add_argument("--username", "-u", default="guest")
    made.add_argument("--password", "-p", default="guest")
    made.add_argument("--quiet", "-q", action="store_true", help="say nothing about what was done")
    made.add_argument("--ssl", "-s", action="store_true")
    made.add_argument("--ssl-ca-cert-file")
    made.add_argument("--ssl-insecure", "-k", action="store_true", help="do not check the certificate of the broker")
    made.add_argument("--request-timeout", "-t", type=float, default=120.0, help="seconds")
    formats = ("table", "tsv", "kvp", "long", "raw_json", "pretty_json")
    made.add_argument("--format", "-f", choices=formats, default="table")
    made.add_argument("--sort", "-S", help="the field by which lists are sorted")
    made.add_argument("--sort-reverse", "-R", action="store_true")
    return made


def main() -> int:
    options = parser().parse_intermixed_args()
    if options.command in ("export", "import") and len(options.words) != 1:
        return _wrong(f"{options.command} needs the name of a file")
    try:
        COMMANDS[options.command](AdminApi(options), options)
    except (AdminRefused, OSError, ValueError) as error:
        print(f"*** {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
