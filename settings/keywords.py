"""The keywords of `Settings` and of `Broker`, for type checkers and editors."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypedDict


class NodeKeywords(TypedDict, total=False):
    """The fields of `Settings` except `host` and `port`, as keywords for type checkers and editors.

    A test compares them with `Settings`.
    """

    backlog: int
    tls_port: int | None
    tls_cert_file: str | PathLike[str] | None
    tls_key_file: str | PathLike[str] | None
    tls_ca_file: str | PathLike[str] | None
    tls_verify: str
    ssl_handshake_timeout: int
    ssl_cert_login_from: str
    node_name: str
    cluster_name: str
    server_properties: Mapping[str, str]
    frame_max: int
    channel_max: int
    heartbeat: int
    handshake_timeout: int
    auth_mechanisms: tuple[str, ...]
    default_user: str
    default_pass: str
    default_pass_file: str | PathLike[str] | None
    credential_validator_min_length: int
    credential_validator_regexp: str
    default_vhost: str
    loopback_users: tuple[str, ...]
    load_definitions: str | PathLike[str] | None
    event_exchange_vhost: str | None
    log_exchange_vhost: str | None
    log_exchange_level: str
    connection_max: int | None
    max_message_size: int
    consumer_timeout: int | None
    channel_tick_interval: int
    channel_operation_timeout: int
    channel_retain_limit: int
    mirror_window: int
    mirror_ack_timeout: int
    mirror_sync_timeout: float
    mirror_replace_wait: float
    mirroring_sync_batch_size: int
    mirroring_sync_max_throughput: int
    default_consumer_prefetch: tuple[bool, int]
    qos_prefetch_size: bool
    queue_master_locator: str
    queue_mode_precedence: str
    credit_flow_default_credit: tuple[int, int]
    msg_store_credit_disc_bound: tuple[int, int]
    output_buffer_limit: int
    control_backlog_limit: int
    turn_messages: int
    flow_hold_channel: int
    flow_hold_queue: int
    flow_hold_connection: int
    flow_report_interval: int
    credit_flow_tracing: bool
    vm_memory_high_watermark: float | str
    vm_memory_high_watermark_paging_ratio: float
    total_memory_available_override_value: int | str | None
    memory_monitor_interval: int
    disk_free_limit: float | str
    message_index_max_bytes: int
    message_index_engine: str
    message_index_slots: int
    message_index_entries: int
    stop_timeout: int
    data_dir: str | PathLike[str] | None
    cluster_port: int | None
    cluster_host: str | None
    cluster_address: str | None
    cluster_peer_addresses: Mapping[str, str]
    cluster_cookie_file: str | PathLike[str] | None
    cluster_cookie: str | None
    cluster_tls_cert_file: str | PathLike[str] | None
    cluster_tls_key_file: str | PathLike[str] | None
    cluster_tls_ca_file: str | PathLike[str] | None
    link_control_window: int
    link_data_window: int
    link_bulk_window: int
    cluster_role: str
    cluster_formation: Mapping[str, Any]
    cluster_partition_handling: str
    cluster_pause_grace: int
    net_ticktime: float
    cluster_apply_lag: int
    mnesia_table_loading_retry_timeout: int
    mnesia_table_loading_retry_limit: int
    log_file: str | PathLike[str] | None
    log_level: str
    log_format: str
    log_rotation_size: int | str | None
    log_rotation_period: str
    log_rotation_count: int
    control_dir: str | PathLike[str] | None
    control_port: int | None
    control_host: str
    control_cookie_file: str | PathLike[str] | None
    management: bool
    management_host: str | None
    management_port: int | None
    management_tls_port: int | None
    prometheus_port: int | None
    prometheus_per_object_metrics: bool
    management_path_prefix: str
    management_rates_mode: str
    management_interval: int
    management_body_limit: int
    management_idle_timeout: int
    management_session_minutes: int
    management_cors_allow_origins: tuple[str, ...]
    management_cors_max_age: int
    management_oauth_keys: str | None
    management_oauth_audience: str | None
    management_oauth_issuer: str | None
    management_oauth_user_claim: str


class SettingKeywords(NodeKeywords, total=False):
    """The keywords of `Settings.of` and `Settings.from_toml`."""

    host: str
    port: int
