"""`Settings`: the configuration of a node.

A `Settings` value is frozen, checked when it is made, and given to every process of the node. Names, defaults and
meanings follow the specification (amqp-broker section 1, flow-control section 1, queue-and-store section 1). Times are
**milliseconds** and sizes are **bytes** unless a field says otherwise; `heartbeat` is in seconds, as in AMQP.

    Settings(port=0, heartbeat=10)                    keywords
    Settings.from_toml("warren.toml", port=5673)      a file of the same keys; keywords win over the file

A wrong setting raises `SettingsError`, whose text names the key, the value, the reason and what is allowed.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from .cluster_settings import (
    DEFAULT_CLUSTER_PORT,
    FORMATION,
    SOURCES,
    read_formation,
    read_partition_handling,
    read_peer_addresses,
)
from .fields import SettingsError, check_credit, check_pattern, checked, read_path_prefix, setting, wrong
from .keywords import SettingKeywords
from .limits import read_disk_limit, read_size, read_watermark
from .oauth import check_oauth
from .toml_file import TomlFile

DEFAULT_PORT = 5672

#: AMQP 0-9-1 forbids a smaller frame_max.
FRAME_MIN_SIZE = 4096

#: The largest value of `max_message_size` (amqp-broker section 1).
MAX_MESSAGE_SIZE_HARD_CAP = 536_870_912


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one node. Every field has a default; `Settings()` is 127.0.0.1:5672 without a data directory."""

    # -- listening ---
    host: str = setting("127.0.0.1", "address to listen on; `0.0.0.0` is all IPv4 addresses, `::` all addresses")
    port: int = setting(DEFAULT_PORT, "TCP port; 0 lets the operating system choose a free one", low=0, high=65_535)
    # A burst of connecting clients overflows RabbitMQ's 128; a client whose SYN is dropped retries after 1 s.
    backlog: int = setting(1_024, "connections that may wait in the operating system", low=1, high=65_535)

    # -- TLS ---
    tls_port: int | None = setting(
        None,
        "TCP port for TLS, usually 5671; 0 lets the operating system choose, None switches TLS off",
        low=0,
        high=65_535,
        optional=True,
    )
    tls_cert_file: str | None = setting(
        None,
        "PEM file: the broker's certificate, then the certificates of intermediate authorities",
        path=True,
        optional=True,
    )
    tls_key_file: str | None = setting(
        None,
        "PEM file: the certificate's key, not encrypted; None if `tls_cert_file` contains it",
        path=True,
        optional=True,
    )
    tls_ca_file: str | None = setting(
        None, "PEM file: the authorities whose client certificates are accepted", path=True, optional=True
    )
    tls_verify: str = setting(
        "none",
        "client certificates: `none` asks for none, `optional` checks one that is sent, `required` demands one",
        choices=("none", "optional", "required"),
    )
    ssl_handshake_timeout: int = setting(5_000, "ms that a TLS handshake may take", low=1, high=3_600_000)
    ssl_cert_login_from: str = setting(
        "distinguished_name",
        "part of the client's certificate that is the user name for EXTERNAL: `distinguished_name`, `common_name` or"
        " `subject_alternative_name`",
        choices=("distinguished_name", "common_name", "subject_alternative_name"),
    )

    # -- names ---
    node_name: str = setting("warren@localhost", "name of this node in listings and logs")
    cluster_name: str = setting("warren@localhost", "`cluster_name` in the server properties")
    # AB-9
    server_properties: Mapping[str, str] = setting(
        {}, "more server properties for `connection.start`; they replace the broker's own of the same name"
    )

    # -- negotiation ---
    frame_max: int = setting(
        131_072,
        "bytes: largest frame, proposed in `connection.tune`; 0 is no limit",
        low=FRAME_MIN_SIZE,
        high=2**31 - 1,
        zero=True,
    )
    channel_max: int = setting(
        2_047, "channels per connection, proposed in `connection.tune`; 0 is no limit", low=0, high=65_535
    )
    heartbeat: int = setting(60, "seconds, proposed in `connection.tune`; 0 is off", low=0, high=65_535)
    # AB-3
    handshake_timeout: int = setting(
        10_000, "ms from accepting a connection until the client has opened it", low=1, high=3_600_000
    )
    auth_mechanisms: tuple[str, ...] = setting(
        ("PLAIN", "AMQPLAIN"),
        "login mechanisms offered, in order; `EXTERNAL` (client certificates) is offered on TLS connections only",
    )

    # -- users and virtual hosts ---
    default_user: str = setting("guest", "name of the first user, an administrator, who is added when a node is new")
    default_pass: str = setting("guest", "that user's password; later `change_password` changes it", secret=True)
    default_pass_file: str | None = setting(
        None,
        "file with that password, which takes the place of `default_pass`; a line end after it does not count",
        path=True,
        optional=True,
    )
    # AB-167
    credential_validator_min_length: int = setting(0, "least number of characters in a new password", low=0)
    credential_validator_regexp: str = setting(
        "", "regular expression that a new password must match somewhere; an empty one allows every password"
    )
    default_vhost: str = setting("/", "name of the virtual host that exists from the start")
    # AB-16
    loopback_users: tuple[str, ...] = setting(("guest",), "users that may log in from this machine only")
    load_definitions: str | None = setting(
        None,
        "file with definitions in RabbitMQ's JSON, or directory of such files, that the node imports at each start,"
        " before clients can connect; a new node then has no user but those in the files",
        path=True,
        optional=True,
    )
    event_exchange_vhost: str | None = setting(
        None,
        "virtual host of the exchange `amq.rabbitmq.event`, which publishes what happens in the node; None is no such"
        " exchange",
        text=True,
        optional=True,
    )
    log_exchange_vhost: str | None = setting(
        None,
        "virtual host of the exchange `amq.rabbitmq.log`, which publishes the lines of the log; None is no such"
        " exchange",
        text=True,
        optional=True,
    )
    log_exchange_level: str = setting(
        "info",
        "lowest level of the lines that `amq.rabbitmq.log` publishes, if the log has them",
        choices=("debug", "info", "warning", "error"),
    )
    connection_max: int | None = setting(
        None, "connections that may be open at once; None is no limit", low=0, optional=True
    )

    # -- messages and consumers ---
    max_message_size: int = setting(134_217_728, "bytes: largest message body", low=0, high=MAX_MESSAGE_SIZE_HARD_CAP)
    consumer_timeout: int | None = setting(
        1_800_000,
        "ms that a delivery may stay unacknowledged, unless its queue or consumer sets another time; None is no limit",
        low=1,
        optional=True,
    )
    channel_tick_interval: int = setting(60_000, "ms between two checks of `consumer_timeout`", low=1)
    # AB-178
    channel_operation_timeout: int = setting(15_000, "ms that a closing channel waits for its queues", low=1)
    # CL-96
    channel_retain_limit: int = setting(
        8_388_608,
        "bytes of unanswered publishes to mirrored queues that a channel keeps, to publish them again if the master is"
        " lost; 0 is none",
        low=0,
        high=1_073_741_824,
    )
    # CL-69
    mirror_window: int = setting(
        8_388_608,
        "bytes of a mirrored queue's stream that its master sends before all mirrors have them; then publishers wait",
        low=65_536,
        high=1_073_741_824,
    )
    # CL-80
    mirror_ack_timeout: int = setting(
        5_000,
        "ms for which a mirror may hold up the confirms of its queue before it is evicted, unless a policy has"
        " `ha-ack-timeout`",
        low=1_000,
        high=300_000,
    )
    # CL-90
    mirror_sync_timeout: float = setting(
        30.0,
        "seconds that a replica which copies a mirrored queue waits for the next part before it asks again",
        above=0.0,
        low=1.0,
        high=3_600.0,
    )
    # CL-92
    mirror_replace_wait: float = setting(
        60.0,
        "seconds after which another node gets the replica of one that has not come back",
        above=0.0,
        low=1.0,
        high=3_600.0,
    )
    # CL-89
    mirroring_sync_batch_size: int = setting(
        4_096,
        "messages that a replica requests at a time when it copies a mirrored queue, unless a policy has"
        " `ha-sync-batch-size`",
        low=1,
        high=1_000_000,
    )
    mirroring_sync_max_throughput: int = setting(
        0,
        "bytes a second that a replica on this node copies of a mirrored queue; 0 is no limit",
        low=0,
        high=1 << 40,
    )
    default_consumer_prefetch: tuple[bool, int] = setting(
        (False, 0), "(global, messages): prefetch until the client sends `basic.qos`; 0 messages is no limit"
    )
    # QP-117
    qos_prefetch_size: bool = setting(
        False,
        "whether the prefetch size of `basic.qos`, in bytes, bounds what each later consumer holds; otherwise it is "
        "refused, as by RabbitMQ",
    )

    queue_master_locator: str = setting(
        "client-local",
        "where a new queue is at home in a cluster, unless its arguments or a policy set it",
        choices=("client-local", "min-masters", "random"),
    )
    # D-1
    queue_mode_precedence: str = setting(
        "argument",
        "which one wins if a queue's arguments and a policy both set its mode, `default` or `lazy`",
        choices=("argument", "policy"),
    )

    # -- flow control ---
    # FC-1
    credit_flow_default_credit: tuple[int, int] = setting(
        (400, 200), "messages: (initial credit, returned after this many); (0, 0) switches credit flow off"
    )
    msg_store_credit_disc_bound: tuple[int, int] = setting(
        (4_000, 800),
        "the same between a queue and its journal and message stores: it bounds the messages that wait for the disk",
    )
    # FC-35
    output_buffer_limit: int = setting(
        8_388_608, "bytes that may wait for one socket before the broker stops reading from it", low=1
    )
    # FC-34
    control_backlog_limit: int = setting(1_000, "methods without content that may wait in one channel", low=1)
    # A message that is settled by itself takes up to 30 µs on a busy machine, if that splits a run of messages.
    turn_messages: int = setting(
        128, "messages that a channel or a queue settles one by one before other clients have their turn", low=1
    )
    flow_hold_channel: int = setting(1_000, "ms that the state `flow` of a channel stays visible", low=0)
    flow_hold_queue: int = setting(1_000, "ms that the state `flow` of a queue stays visible", low=0)
    flow_hold_connection: int = setting(5_000, "ms that the state `flow` of a connection stays visible", low=0)
    # FC-67
    flow_report_interval: int = setting(
        30_000, "ms between two reports in the log of what holds connections back; 0: no reports", low=0
    )
    # FC-46
    credit_flow_tracing: bool = setting(
        False, "emit an event whenever a connection, a channel or a queue runs out of credit or gets credit again"
    )

    # -- memory and disk ---
    vm_memory_high_watermark: float | str = setting(
        0.4,
        "memory use above which publishers are blocked: a share of the available memory, or a size such as"
        ' `"2GB"` or `"512MiB"`',
        read=read_watermark,
    )
    vm_memory_high_watermark_paging_ratio: float = setting(
        0.5,
        "share of the watermark above which messages move to disk, with a `data_dir`; without one they stay in memory",
        above=0.0,
    )
    total_memory_available_override_value: int | str | None = setting(
        None,
        "available memory, in bytes or as a size, instead of what the machine and the control group report",
        read=read_size,
        optional=True,
    )
    # RabbitMQ samples every 2.5 s; in that time a fast publisher is gigabytes past the watermark. Two samples a second
    # cost 0.03 % of a core.
    memory_monitor_interval: int = setting(500, "ms between two samples of the memory use", low=10, high=3_600_000)
    disk_free_limit: float | str = setting(
        50_000_000,
        "free disk space below which publishers are blocked, with a `data_dir`: bytes, a size, or a multiple of the"
        " available memory such as `1.5`; 0 is off",
        read=read_disk_limit,
    )

    message_index_max_bytes: int = setting(
        4_294_967_296,
        "bytes that the message index of a virtual host may use on the disk; the oldest messages leave a full one",
        low=1_048_576,
    )
    # QP-45
    message_index_engine: str = setting(
        "lmdb",
        "where the message index keeps keys: `lmdb`, a table of its database, `hash`, files like RocketMQ's, or "
        "`hash-java`, the same with RocketMQ's hash. An index of another engine is made anew",
        choices=("lmdb", "hash", "hash-java"),
    )
    message_index_slots: int = setting(5_000_000, "slots of each file of the engine `hash`", low=4)
    message_index_entries: int = setting(20_000_000, "keys in each file of the engine `hash`", low=16)

    # -- the node ---
    stop_timeout: int = setting(
        1_000,
        "ms that a stopping node waits for clients to answer `connection.close` before it closes the sockets",
        low=0,
        high=86_400_000,
    )
    data_dir: str | None = setting(
        None, "directory for durable data; None keeps everything in memory", path=True, optional=True
    )

    # -- the cluster ---
    cluster_port: int | None = setting(
        None,
        "TCP port for the other nodes of a cluster, usually 25672; 0 lets the operating system choose, None is off",
        low=0,
        high=65_535,
        optional=True,
    )
    cluster_host: str | None = setting(
        None, "address to listen on for other nodes; None is that of `host`", text=True, optional=True
    )
    cluster_address: str | None = setting(
        None,
        "host at which other nodes reach this one; None is the part of `node_name` behind the `@`",
        text=True,
        optional=True,
    )
    # CL-124
    cluster_peer_addresses: Mapping[str, str] = setting(
        {},
        "where this node reaches others, by their names, such as `10.0.0.2:25672`, for nodes behind a proxy or tunnel."
        " With `cluster_formation` and without `cluster_port`, this node listens on the port of its own entry, if any",
        read=read_peer_addresses,
    )
    cluster_cookie_file: str | None = setting(
        None,
        "file with the secret that all nodes of a cluster share, for its owner only; None is `~/.warren.cookie`. The"
        " environment variable WARREN_COOKIE wins over it",
        path=True,
        optional=True,
    )
    cluster_cookie: str | None = setting(
        None, "the secret itself, which wins over the file and the variable", text=True, optional=True, secret=True
    )
    cluster_tls_cert_file: str | None = setting(
        None,
        "PEM file with the certificate that this node shows other nodes; None is no TLS between nodes",
        path=True,
        optional=True,
    )
    cluster_tls_key_file: str | None = setting(
        None, "PEM file with its key; None if `cluster_tls_cert_file` contains it", path=True, optional=True
    )
    cluster_tls_ca_file: str | None = setting(
        None, "PEM file with the authorities of all nodes' certificates", path=True, optional=True
    )
    link_control_window: int = setting(
        4_194_304,
        "bytes received on a link's lane `control` that a node keeps while it is behind with the cluster's metadata",
        low=1_048_576,
        high=1_073_741_824,
    )
    link_data_window: int = setting(33_554_432, "the same for the lane `data`", low=1_048_576, high=1_073_741_824)
    link_bulk_window: int = setting(4_194_304, "the same for the lane `bulk`", low=1_048_576, high=1_073_741_824)
    # CL-20
    cluster_role: str = setting(
        "data",
        "what the node becomes when it joins or founds a cluster; a `witness` votes and has neither queues nor clients",
        choices=("data", "witness"),
    )
    # CL-39
    cluster_formation: Mapping[str, Any] = setting(
        FORMATION,
        "how a node without a cluster finds one: `nodes` is a list of names, or `dns` a name with an address for each"
        " node, or `file` a file with a name on each line. `timeout` are the ms until the node gives up; with"
        " `replace_lost` a node with an empty data directory takes the place of the member of its name",
        read=read_formation,
    )
    # CL-54
    cluster_partition_handling: str = setting(
        "pause_minority",
        "what a node does that cannot reach a majority of its cluster; `pause_minority` is the only choice",
        read=read_partition_handling,
    )
    cluster_pause_grace: int = setting(
        5_000,
        "ms without a majority after which a node closes its listeners and the connections of its clients",
        low=0,
        high=600_000,
    )
    net_ticktime: float = setting(
        2.0,
        "seconds without a sign of life after which a node counts as lost, the same on all nodes of a cluster",
        above=0.0,
        low=0.5,
        high=600.0,
    )
    cluster_apply_lag: int = setting(
        1_000,
        "ms that a node may lag behind its cluster's metadata before it may no longer act for it",
        low=100,
        high=60_000,
    )
    # CL-41
    mnesia_table_loading_retry_timeout: int = setting(
        30_000, "ms that a starting member waits for a majority of its cluster, for each retry", low=100, high=3_600_000
    )
    mnesia_table_loading_retry_limit: int = setting(
        10, "how often a starting member waits for a majority before it gives up", low=1, high=1_000_000
    )

    # -- the log of `warren start` ---
    log_file: str | None = setting(
        None,
        "file to which `warren start` appends its log; None is the standard error. A program that embeds a broker"
        " configures its own log",
        path=True,
        optional=True,
    )
    log_level: str = setting(
        "info", "lowest level of the lines in that log", choices=("debug", "info", "warning", "error")
    )
    log_format: str = setting("text", "form of a line: `text`, or `json` for one JSON object", choices=("text", "json"))
    log_rotation_size: int | str | None = setting(
        None,
        'bytes, or a size such as `"10MB"`, above which `log_file` is renamed and begins anew; None is no limit',
        read=read_size,
        optional=True,
    )
    log_rotation_period: str = setting(
        "never", "when else `log_file` begins anew: `daily` at midnight, `hourly`", choices=("never", "hourly", "daily")
    )
    log_rotation_count: int = setting(5, "older log files that are kept", low=0, high=10_000)

    # -- commands ---
    control_dir: str | None = setting(
        None,
        "directory of the socket by which the `warren` command reaches the node, for the node's owner only; None is no"
        " socket",
        path=True,
        optional=True,
    )
    control_port: int | None = setting(
        None,
        "TCP port for the `warren` command of other machines; 0 lets the operating system choose, None is off",
        low=0,
        high=65_535,
        optional=True,
    )
    control_host: str = setting("127.0.0.1", "address of `control_port`")
    control_cookie_file: str | None = setting(
        None,
        "file with the secret that commands on `control_port` must know, readable by its owner only",
        path=True,
        optional=True,
    )

    # -- management ---
    management: bool = setting(
        False,
        "whether a process beside the node serves the HTTP API and metrics; `warren start` does unless it is false. It"
        " needs a `control_dir`",
    )
    management_host: str | None = setting(
        None, "address on which that process listens; None is the one of `host`", text=True, optional=True
    )
    management_port: int | None = setting(
        15_672, "TCP port of the HTTP API; 0 chooses a free one, None is off", low=0, high=65_535, optional=True
    )
    management_tls_port: int | None = setting(
        None,
        "TCP port of the HTTP API with TLS, usually 15671, with `tls_cert_file` and `tls_key_file`; None is off",
        low=0,
        high=65_535,
        optional=True,
    )
    prometheus_port: int | None = setting(
        15_692, "TCP port of the metrics; 0 chooses a free one, None is off", low=0, high=65_535, optional=True
    )
    prometheus_per_object_metrics: bool = setting(
        False, "whether `/metrics` has a series for each object, as `/metrics/per-object`"
    )
    management_path_prefix: str = setting(
        "", "what all paths of the HTTP API begin with, such as `/warren`", read=read_path_prefix
    )
    management_rates_mode: str = setting(
        "basic",
        "whether channels count what goes between each exchange, channel and queue (`detailed`) or not",
        choices=("basic", "detailed"),
    )
    management_interval: int = setting(5_000, "ms between two samples of statistics", low=100, high=3_600_000)
    management_body_limit: int = setting(20_000_000, "bytes of a request's body", low=1_024, high=2**31 - 1)
    management_idle_timeout: int = setting(60, "seconds that a client of the HTTP API may be idle", low=1, high=86_400)
    management_session_minutes: int = setting(480, "minutes that a login by cookie lasts", low=1, high=525_600)
    management_cors_allow_origins: tuple[str, ...] = setting(
        (), "sites whose pages may use the HTTP API, such as `https://example.com`"
    )
    management_cors_max_age: int = setting(
        1_800, "seconds that a browser remembers whether the pages of a site may use it", low=0, high=86_400
    )
    management_oauth_keys: str | None = setting(
        None,
        "the keys of an OAuth 2 provider whose tokens log users in: the `https` address of its JWKS, or a file with"
        " them; None is no such login",
        text=True,
        optional=True,
    )
    management_oauth_audience: str | None = setting(
        None, "the audience (`aud`) that such a token must have", text=True, optional=True
    )
    management_oauth_issuer: str | None = setting(
        None, "the issuer (`iss`) that it must have; None is any", text=True, optional=True
    )
    management_oauth_user_claim: str = setting("sub", "the claim of the token that names the user")

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(
                self, item.name, checked(item.name, getattr(self, item.name), item.default, item.metadata)
            )
        check_credit("credit_flow_default_credit", self.credit_flow_default_credit)
        check_credit("msg_store_credit_disc_bound", self.msg_store_credit_disc_bound)
        _check_tls(self)
        if (self.cluster_tls_cert_file is None) != (self.cluster_tls_ca_file is None):
            missing = "cluster_tls_cert_file" if self.cluster_tls_cert_file is None else "cluster_tls_ca_file"
            raise wrong(missing, None, "a path, because TLS between nodes needs a certificate and the authorities")
        if self.cluster_port is None and any(self.cluster_formation[source] for source in SOURCES):
            own = self.cluster_peer_addresses.get(self.node_name, "")
            object.__setattr__(self, "cluster_port", int(own.rpartition(":")[2]) if own else DEFAULT_CLUSTER_PORT)
        if self.cluster_role == "witness" and self.cluster_port is None:
            raise wrong("cluster_role", "witness", "'data' on a node without a cluster_port, which has no cluster")
        check_pattern("credential_validator_regexp", self.credential_validator_regexp)
        if self.control_port is not None and self.control_cookie_file is None:
            raise wrong("control_cookie_file", None, "the path of a file with a secret when control_port is set")
        if self.management_tls_port is not None and self.tls_cert_file is None:
            raise wrong("tls_cert_file", None, "the path of the broker's certificate when management_tls_port is set")
        check_oauth(self.management_oauth_keys, self.management_oauth_audience)

    @classmethod
    def of(cls, **values: Unpack[SettingKeywords]) -> "Settings":
        """Settings from keywords; an unknown keyword is a `SettingsError` that names the nearest known one."""
        for key in values:
            _check_known(key)
        checked_later: Any = values
        return cls(**checked_later)

    def first_password(self) -> str:
        """The password of the first user. Raises SettingsError if its file cannot be read or is empty."""
        if self.default_pass_file is None:
            return self.default_pass
        key = "default_pass_file"
        try:
            text = Path(self.default_pass_file).read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise SettingsError(
                key, f"setting '{key}': cannot read '{self.default_pass_file}': {error.strerror}"
            ) from None
        password = text.removesuffix("\n").removesuffix("\r")
        if not password:
            raise SettingsError(key, f"setting '{key}': '{self.default_pass_file}' is empty; nobody could log in")
        return password

    @classmethod
    def from_toml(cls, path: str | PathLike[str], **overrides: Unpack[SettingKeywords]) -> "Settings":
        """Settings from the top-level keys of a TOML file; keywords win over the file.

        Raises `SettingsError`, which names the file, if the file is not TOML or has a wrong key or value, and `OSError`
        if it cannot be read.
        """
        file = TomlFile(path)
        values: Any = file.values
        try:
            cls.of(**values)
        except SettingsError as error:
            raise SettingsError(error.key, f"{file.place(error.key)}: {error}") from None
        return cls.of(**{**values, **overrides})


def _check_known(key: str) -> None:
    known = [item.name for item in fields(Settings)]
    if key in known:
        return
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known settings: {', '.join(known)}"
    raise SettingsError(key, f"unknown setting '{key}'; {hint}")


def _check_tls(settings: Settings) -> None:
    """Check that the settings of TLS are complete; the files are read when the node starts."""
    if settings.tls_port is None:
        return
    if settings.tls_cert_file is None:
        raise wrong("tls_cert_file", None, "the path of the broker's certificate when tls_port is set")
    if settings.tls_port == settings.port != 0:
        raise wrong("tls_port", settings.tls_port, "another port than that of connections without TLS")
    if settings.tls_verify != "none" and settings.tls_ca_file is None:
        raise wrong(
            "tls_ca_file", None, f"the path of the authorities' certificates when tls_verify is {settings.tls_verify!r}"
        )
