"""`Config`: the configuration that a node passes to its management process at the start, as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...settings import Settings


@dataclass(frozen=True, slots=True)
class Config:
    """See the module. The names are those of the settings, without `management_`."""

    control_dir: str
    node_name: str
    host: str
    port: int | None
    prometheus_port: int | None
    tls_port: int | None
    tls_cert_file: str | None
    tls_key_file: str | None
    path_prefix: str
    interval: int
    body_limit: int
    cors_allow_origins: tuple[str, ...]
    cors_max_age: int
    session_minutes: int
    idle_timeout: int
    loopback_users: tuple[str, ...]
    per_object_metrics: bool
    oauth_keys: str | None
    oauth_audience: str | None
    oauth_issuer: str | None
    oauth_user_claim: str

    @classmethod
    def of(cls, settings: Settings) -> Config:
        """The configuration for a node with these settings, which has a `control_dir`."""
        assert settings.control_dir is not None
        return cls(
            settings.control_dir,
            settings.node_name,
            settings.management_host or settings.host,
            settings.management_port,
            settings.prometheus_port,
            settings.management_tls_port,
            settings.tls_cert_file,
            settings.tls_key_file,
            settings.management_path_prefix,
            settings.management_interval,
            settings.management_body_limit,
            tuple(settings.management_cors_allow_origins),
            settings.management_cors_max_age,
            settings.management_session_minutes,
            settings.management_idle_timeout,
            tuple(settings.loopback_users),
            settings.prometheus_per_object_metrics,
            settings.management_oauth_keys,
            settings.management_oauth_audience,
            settings.management_oauth_issuer,
            settings.management_oauth_user_claim,
        )

    @classmethod
    def from_json(cls, text: str) -> Config:
        values = json.loads(text)
        for name in ("cors_allow_origins", "loopback_users"):
            values[name] = tuple(values[name])
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(asdict(self))
