"""The commands for policies, parameters, and limits of virtual hosts (CM-111 to CM-125)."""

from __future__ import annotations

import re
from typing import Any

import click

from ..node_command import BadArguments, Call, node_command, one_of

POLICIES = "Policies"
PARAMETERS = "Parameters"
VHOSTS = "Virtual hosts"

_POLICY_COLUMNS = ("vhost", "name", "pattern", "apply-to", "definition", "priority")

#: What a policy may apply to.
APPLY_TO = ("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all")

PRIORITY = click.option(
    "--priority", type=int, default=0, help="The matching policy of highest priority applies.  [default: 0]"
)


@node_command(POLICIES)
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@PRIORITY
@click.option(
    "--apply-to",
    default="all",
    shell_complete=one_of(*APPLY_TO),
    help="queues, classic_queues, quorum_queues, streams, exchanges or all.  [default: all]",
)
def set_policy(call: Call, name: str, pattern: str, definition: str, priority: int, apply_to: str) -> None:
    """Set the policy NAME. It applies the JSON object DEFINITION to queues and exchanges whose name matches PATTERN."""
    call.banner(
        f'Setting policy "{name}" for pattern "{pattern}" to "{definition}" with priority "{priority}" '
        f'for vhost "{call.vhost}" ...'
    )
    _set(call, "set_policy", name, pattern, definition, priority, apply_to)


@node_command(POLICIES)
@click.argument("name")
@click.argument("pattern")
@click.argument("definition")
@PRIORITY
@click.option(
    "--apply-to", default="queues", help="queues, classic_queues, quorum_queues or streams.  [default: queues]"
)
def set_operator_policy(call: Call, name: str, pattern: str, definition: str, priority: int, apply_to: str) -> None:
    """Set the operator policy NAME. It applies limits, the JSON object DEFINITION, to queues that match PATTERN."""
    call.banner(
        f'Setting operator policy override "{name}" for pattern "{pattern}" to "{definition}" '
        f'with priority "{priority}" for vhost "{call.vhost}" ...'
    )
    _set(call, "set_operator_policy", name, pattern, definition, priority, apply_to)


def _set(call: Call, operation: str, name: str, pattern: str, definition: str, priority: int, apply_to: str) -> None:
    arguments: dict[str, Any] = {"name": name, "pattern": pattern, "definition": definition}
    call.ask(operation, vhost=call.vhost, priority=priority, apply_to=apply_to, **arguments)
    call.done()


#: A rate such as `50`, `50/s`, `600/m` or `2.5/h`.
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?", re.ASCII)
#: Milliseconds of the period that a rate names.
_PERIODS = {"s": 1000, "m": 60_000, "h": 3_600_000}


@node_command(POLICIES)
@click.argument("queue")
@click.argument("rate")
@click.option("--max-wait", type=int, metavar="MS", help="The longest planned wait of a message.  [default: 500]")
@click.option("--overflow", help="What happens to a message that would wait longer: hold, dead-letter, nack or drop.")
@click.option("--warm-up", type=int, metavar="MS", help="How long the rate grows after a pause, from a third of RATE.")
@click.option("--cost", help="What RATE counts: message, or kib for KiB of bodies.  [default: message]")
@click.option("--group", metavar="NAME", help="Share RATE with all queues that name the same group.")
def set_pace(
    call: Call,
    queue: str,
    rate: str,
    max_wait: int | None,
    overflow: str | None,
    warm_up: int | None,
    cost: str | None,
    group: str | None,
) -> None:
    """Let QUEUE deliver evenly, at a RATE of messages a second, a minute or an hour: 50, 50/s, 600/m, 9/h.

    The rate is stored as the policy pace.QUEUE, so it survives a restart.
    """
    found = _RATE.fullmatch(rate)
    if found is None or not float(found[1]):
        raise BadArguments(f"Bad argument: '{rate}' is no rate above 0 such as 50, 50/s, 600/m or 9/h", is_data=True)
    period = _PERIODS[found[2] or "s"]
    call.banner(f"Setting pace of queue '{queue}' in vhost '{call.vhost}' to {rate} ...")
    other = call.ask(
        "set_pace",
        vhost=call.vhost,
        queue=queue,
        rate=float(found[1]),
        period_ms=period,
        max_wait_ms=max_wait,
        overflow=overflow,
        warm_up_ms=warm_up,
        cost=cost,
        group=group,
    )
    if other:
        call.remark(
            f"Policy pace.{queue} contains what policy {other} defines now, because only one policy applies to a queue."
        )
    call.done()


@node_command(POLICIES, "Clearing pace of queue '{queue}' in vhost '{vhost}' ...")
@click.argument("queue")
def clear_pace(call: Call, queue: str) -> None:
    """Remove the pace that set_pace has set for QUEUE."""
    call.ask("clear_pace", vhost=call.vhost, queue=queue)
    call.done()


@node_command(POLICIES, 'Clearing policy "{name}" on vhost "{vhost}" ...')
@click.argument("name")
def clear_policy(call: Call, name: str) -> None:
    """Remove the policy NAME."""
    call.ask("clear_policy", vhost=call.vhost, name=name)
    call.done()


@node_command(POLICIES, 'Clearing operator policy "{name}" on vhost "{vhost}" ...')
@click.argument("name")
def clear_operator_policy(call: Call, name: str) -> None:
    """Remove the operator policy NAME."""
    call.ask("clear_operator_policy", vhost=call.vhost, name=name)
    call.done()


@node_command(POLICIES, 'Listing policies for vhost "{vhost}" ...', timeout=60.0)
def list_policies(call: Call) -> None:
    """List the policies of a virtual host."""
    call.list(_POLICY_COLUMNS, call.node.rows("list_policies", vhost=call.vhost))


@node_command(POLICIES, 'Listing operator policy overrides for vhost "{vhost}" ...', timeout=60.0)
def list_operator_policies(call: Call) -> None:
    """List the operator policies of a virtual host."""
    call.list(_POLICY_COLUMNS, call.node.rows("list_operator_policies", vhost=call.vhost))


# -- parameters ---


@node_command(
    PARAMETERS,
    'Setting runtime parameter "{name}" for component "{component_name}" to "{value}" in vhost "{vhost}" ...',
)
@click.argument("component_name")
@click.argument("name")
@click.argument("value")
def set_parameter(call: Call, component_name: str, name: str, value: str) -> None:
    """Set the parameter NAME of the component COMPONENT_NAME to the JSON VALUE."""
    call.ask("set_parameter", vhost=call.vhost, component=component_name, name=name, value=value)
    call.done()


@node_command(PARAMETERS, 'Clearing runtime parameter "{name}" for component "{component_name}" on vhost "{vhost}" ...')
@click.argument("component_name")
@click.argument("name")
def clear_parameter(call: Call, component_name: str, name: str) -> None:
    """Remove the parameter NAME of the component COMPONENT_NAME."""
    call.ask("clear_parameter", vhost=call.vhost, component=component_name, name=name)
    call.done()


@node_command(PARAMETERS, 'Listing runtime parameters for vhost "{vhost}" ...', timeout=60.0)
def list_parameters(call: Call) -> None:
    """List the parameters of a virtual host."""
    call.list(("component", "name", "value"), call.node.rows("list_parameters", vhost=call.vhost))


@node_command(PARAMETERS, 'Setting global runtime parameter "{name}" to "{value}" ...')
@click.argument("name")
@click.argument("value")
def set_global_parameter(call: Call, name: str, value: str) -> None:
    """Set the parameter NAME of the whole cluster to the JSON VALUE."""
    call.ask("set_global_parameter", name=name, value=value)
    call.done()


@node_command(PARAMETERS, 'Clearing global runtime parameter "{name}" ...')
@click.argument("name")
def clear_global_parameter(call: Call, name: str) -> None:
    """Remove the parameter NAME of the whole cluster."""
    call.ask("clear_global_parameter", name=name)
    call.done()


@node_command(PARAMETERS, "Listing global runtime parameters ...", timeout=60.0)
def list_global_parameters(call: Call) -> None:
    """List the parameters of the whole cluster."""
    call.list(("name", "value"), call.node.rows("list_global_parameters"))


# -- limits of virtual hosts ---


@node_command(VHOSTS, 'Setting vhost limits to "{definition}" for vhost "{vhost}" ...')
@click.argument("definition")
def set_vhost_limits(call: Call, definition: str) -> None:
    """Set limits of a virtual host. DEFINITION is a JSON object with max-connections and max-queues."""
    call.ask("set_vhost_limits", vhost=call.vhost, limits=definition)
    call.done()


@node_command(VHOSTS, 'Clearing vhost "{vhost}" limits ...')
def clear_vhost_limits(call: Call) -> None:
    """Remove all limits of a virtual host."""
    call.ask("clear_vhost_limits", vhost=call.vhost)
    call.done()


@node_command(VHOSTS)
@click.option("--global", "is_global", is_flag=True, help="List the limits of all virtual hosts that have any.")
def list_vhost_limits(call: Call, is_global: bool) -> None:
    """Show the limits of a virtual host as JSON, or list those of all virtual hosts."""
    if is_global:
        call.banner("Listing limits for all vhosts ...")
        call.list(("vhost", "limits"), call.node.rows("list_vhost_limits"))
    else:
        call.banner(f'Listing limits for vhost "{call.vhost}" ...')
        call.document("limits", call.ask("list_vhost_limits", vhost=call.vhost))


COMMANDS = (
    set_policy,
    set_operator_policy,
    clear_policy,
    set_pace,
    clear_pace,
    clear_operator_policy,
    list_policies,
    list_operator_policies,
    set_parameter,
    clear_parameter,
    list_parameters,
    set_global_parameter,
    clear_global_parameter,
    list_global_parameters,
    set_vhost_limits,
    clear_vhost_limits,
    list_vhost_limits,
)
