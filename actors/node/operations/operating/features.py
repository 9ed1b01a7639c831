"""Operations on feature flags (CM-148, CM-188)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .....definitions.features import FEATURES
from ....context.node_context import NodeContext
from ....metadata.state.commands import EnableFeatures
from ..columns import FEATURE_FLAGS
from ..definitions.changing import change
from ..registry import OperationError, Operator, Rows, operation


@operation()
async def list_feature_flags(operator: Operator, *, columns: list[str] | None = None) -> AsyncIterator[Rows]:
    """A row for each feature that this version has, or that is enabled."""
    chosen = FEATURE_FLAGS.chosen(columns or [])
    yield [{name: row[name] for name in chosen} for row in feature_rows(operator.context)]


def feature_rows(context: NodeContext) -> list[dict[str, object]]:
    """The rows of `list_feature_flags` with all columns."""
    enabled = context.definitions.enabled_features()
    return [
        {
            "name": name,
            "state": "enabled" if name in enabled else "disabled",
            "stability": "stable",
            "provided_by": "warren",
            "desc": FEATURES.get(name, ""),
            "doc_url": "",
        }
        for name in sorted(enabled | set(FEATURES))
    ]


@operation()
async def enable_feature_flag(operator: Operator, *, name: str) -> None:
    """Enable this feature, or `all`, in the whole cluster. It cannot be disabled again."""
    if name != "all" and name not in FEATURES:
        raise OperationError("usage", f"This feature flag is not supported by node {operator.context.node_name}")
    await change(operator, EnableFeatures(tuple(FEATURES) if name == "all" else (name,)))
