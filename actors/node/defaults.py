"""What a new node has: the first user and his permissions, the id of its cluster, the virtual hosts of the settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...definitions.features import FEATURES
from ...definitions.json_text import json_text
from ...definitions.passwords import SALT_BYTES
from ...definitions.records import GlobalParameter, Permission, Record, User
from ...runtime.errors import ProcessDown
from ...settings import SettingsError
from ..context.events import watching_exchanges
from ..contracts.metadata import to_metadata
from ..contracts.node import NodeError
from ..metadata.log.log import OutcomeUnknown
from ..metadata.state.commands import EnableFeatures, PutRecords
from .first_user import first_user

if TYPE_CHECKING:
    from ...runtime.process import Process
    from ..context.node_context import NodeContext

log = logging.getLogger("warren.node")

#: How often a start tries to create what a new node has, and the seconds between two attempts.
ATTEMPTS = 4
WAIT = 0.5


async def ensure_defaults(process: Process, context: NodeContext) -> None:
    """Create what a new node lacks, and repeat this when a virtual host crashes or the outcome of a change is unknown.

    A node of a cluster may receive a snapshot instead of the log entry of its change, and then cannot tell whether
    the change was applied. A virtual host whose processes crash while they start is deleted again, and a node without
    its default virtual host would be of no use. Repeating is safe: `_create_defaults` creates only what does not exist.
    """
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return await _create_defaults(process, context)
        except (OutcomeUnknown, ProcessDown) as error:
            if not attempts_left or isinstance(error, ProcessDown) and not error.reason.is_fault:
                raise
            log.warning("%s; trying again to create what a new node has", error)
            await process.sleep(WAIT)
    return None


async def _create_defaults(process: Process, context: NodeContext) -> None:
    """Create what a new node has, and the virtual hosts that settings name if they are missing.

    A node is new until it has an id for its cluster. Later the default user is a user as any other: an operator may
    have changed or deleted him, and the settings must not bring him back.
    """
    settings, definitions, routing = context.settings, context.definitions, context.routing
    named = dict.fromkeys((settings.default_vhost, *(vhost for vhost, _ in watching_exchanges(settings))))
    vhosts = [vhost for vhost in named if not routing.has_vhost(vhost)]
    for vhost in named:
        await process.ask(context.metadata, to_metadata.create_vhost(vhost))
    records: list[Record] = []
    if definitions.record("global_parameters", ("internal_cluster_id",)) is None:
        cluster_id = f"warren-cluster-id-{process.random_bytes(16).hex()}"
        records.append(GlobalParameter("internal_cluster_id", json_text(cluster_id)))
        # As in RabbitMQ, a node that loads definitions has the users that these define, and no others.
        if definitions.user(settings.default_user) is None and settings.load_definitions is None:
            try:
                records.append(first_user(settings, process.random_bytes(SALT_BYTES)))
            except SettingsError as error:
                raise NodeError(str(error)) from None
        vhosts = list(routing.vhosts())
        features = EnableFeatures(tuple(FEATURES))
        await process.ask(context.metadata, to_metadata.change_definitions(features))
    if any(isinstance(each, User) for each in records) or definitions.user(settings.default_user) is not None:
        records += [Permission(settings.default_user, vhost, ".*", ".*", ".*") for vhost in vhosts]
    if records:
        await process.ask(context.metadata, to_metadata.change_definitions(PutRecords(tuple(records))))
