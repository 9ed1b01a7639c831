"""All commands but `start`. The root command imports this module when one of them is needed (`main.Root`)."""

from .definitions import access_commands, definition_commands, policy_commands, vhost_commands
from .observing import check_commands, listing_commands, log_commands, message_commands, quorum_commands
from .observing.diagnose_command import diagnose, flow_chain
from .observing.observer_command import observer
from .observing.prometheus_commands import alerts, dashboard
from .observing.report_command import report
from .operating import (
    acting_commands,
    cluster_commands,
    maintenance_commands,
    mirror_commands,
    status_commands,
    tuning_commands,
)
from .operating.force_boot_command import force_boot
from .pipeline import pipeline
from .programs.perf_test import perf_test
from .programs.simulate import simulate
from .programs.store import store
from .top.command import top

COMMANDS = (
    alerts,
    dashboard,
    diagnose,
    flow_chain,
    force_boot,
    observer,
    perf_test,
    pipeline,
    report,
    simulate,
    store,
    top,
    *access_commands.COMMANDS,
    *acting_commands.COMMANDS,
    *check_commands.COMMANDS,
    *cluster_commands.COMMANDS,
    *definition_commands.COMMANDS,
    *listing_commands.COMMANDS,
    *log_commands.COMMANDS,
    *maintenance_commands.COMMANDS,
    *message_commands.COMMANDS,
    *mirror_commands.COMMANDS,
    *policy_commands.COMMANDS,
    *quorum_commands.COMMANDS,
    *status_commands.COMMANDS,
    *tuning_commands.COMMANDS,
    *vhost_commands.COMMANDS,
)
