"""`Top`: the screen of `warren top`.

    warren@host 0.9.0, up 3 h 12 min   memory 120 MiB of 6.2 GiB   disk 30.0 GiB free   no alarm
    12 connections  14 channels  10,000 queues  40 consumers  12,345 messages   in 9,000/s  out 9,000/s  acks 9,000/s
    Queue: queue 'orders' in vhost '/'. It holds back the connection ...
    [1 Queues]  2 Connections  3 Channels   10,000 queues, by TOTAL
    NAME ...

The first two lines show the state of the node, the third what holds clients back and what to do about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Footer, Input, Static

from ...management.copy.held_back import held_back
from ...management.copy.node_state import NodeState
from ..formatters import cell
from ..observing.diagnose_command import causes
from .feed import Feed, Rows
from .figures import DELIVERED, PAGES, count, node_rate, rate, size, span
from .table import TopTable

#: Makes a feed. The feed calls the first function with each answer and the second with each failure, in its own thread.
MakeFeed = Callable[[Callable[[Rows, bool], object], Callable[[str], object]], Feed]


class Top(App[None]):
    """The Textual application: four lines about the node above a table of queues, connections or channels."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Static { height: 1; }
    #cause { height: auto; max-height: 4; }
    TopTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #filter.shown { display: block; }
    """
    BINDINGS = [
        *(Binding(str(at + 1), f"page({at})", page.title, show=False) for at, page in enumerate(PAGES)),
        Binding("tab", "next_page", "Next page", priority=True),
        Binding("left", "neighbour(-1)", "Sort by", key_display="← →", priority=True),
        Binding("right", "neighbour(1)", "Sort by", show=False, priority=True),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "no_filter", "All", show=False),
        Binding("space", "pause", "Pause", key_display="space"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, node_name: str, make_feed: MakeFeed) -> None:
        super().__init__(ansi_color=True)
        self.state = NodeState(node_name)
        self.feed = make_feed(
            lambda rows, is_first: self.call_later(self.take, rows, is_first),
            lambda reason: self.call_later(self.lose, reason),
        )
        self.table = TopTable(self.state, PAGES[0])
        self.is_paused = False
        #: Why the node does not answer; empty while it does.
        self.lost = ""
        #: When the last answer came.
        self.took_at = time.monotonic()

    def compose(self) -> ComposeResult:
        yield Static(id="node", markup=False)
        yield Static(id="totals", markup=False)
        yield Static("The node is asked for its statistics ...", id="cause", markup=False)
        yield Static(id="pages", markup=False)
        yield self.table
        yield Input(placeholder="part of a name", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.table.focus()
        self._show_pages()
        self.feed.start()

    def on_unmount(self) -> None:
        self.feed.stop()

    # -- what the feed brings ---

    def take(self, rows: Rows, is_first: bool) -> None:
        """Handle an answer of the node: its rows, and whether it is the first of a connection."""
        if is_first:
            self.state.clear()
        self.state.apply(rows)
        self.state.tick(self.state.node["time"])
        self.lost, self.took_at = "", time.monotonic()
        if not self.is_paused and self._is_shown():
            self._show()

    def lose(self, reason: str) -> None:
        """Show that the node does not answer. Its last figures stay on the screen."""
        self.lost = reason
        if self._is_shown():
            self._show_cause()

    def _is_shown(self) -> bool:
        """Whether the screen still exists. The feed's thread may bring an answer while the screen is being closed."""
        return self.table.is_attached

    # -- keys ---

    def action_page(self, number: int) -> None:
        self.table.show(PAGES[number])
        self._show_pages()

    def action_next_page(self) -> None:
        self.action_page((PAGES.index(self.table.page) + 1) % len(PAGES))

    def action_neighbour(self, step: int) -> None:
        self.table.sort_by_neighbour(step)
        self._show_pages()

    def action_reverse(self) -> None:
        self.table.sort(self.table.column)

    def action_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.add_class("shown")
        entry.focus()

    def action_no_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.value = ""
        self._end_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.table.filter = event.value
        self.table.update()
        self._show_pages()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._end_filter()

    def _end_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.table.focus()

    def action_pause(self) -> None:
        self.is_paused = not self.is_paused
        if self.state.node:
            self._show()

    def on_top_table_sorted_by(self, event: TopTable.SortedBy) -> None:
        self.table.sort(event.column)
        self._show_pages()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # While the user types a filter, the arrow keys move the cursor in it.
        return not (action in ("neighbour", "next_page") and isinstance(self.focused, Input))

    def on_resize(self, event: events.Resize) -> None:
        self._show_pages()

    # -- the screen ---

    def _show(self) -> None:
        self._show_node()
        self._show_totals()
        self._show_cause()
        self.table.update()
        self._show_pages()

    def _line(self, place: str, text: Text) -> None:
        self.query_one(f"#{place}", Static).update(text)

    def _show_node(self) -> None:
        node = self.state.node
        memory, disk = node["memory"], node["disk"]
        parts = [f"{cell(node['name'])} {node['version']}, up {span(node['time'] - node['started_at'])}"]
        limit = f" of {size(memory['limit'])}" if memory.get("limit") else ""
        parts.append(f"memory {size(memory['used'] or 0)}{limit}")
        if disk is not None and disk.get("free") is not None:
            parts.append(f"disk {size(disk['free'])} free")
        line = Text("   ".join(parts), style="bold")
        alarms = " and ".join(sorted(node["alarms"]))
        line.append(f"   ALARM: {alarms}" if alarms else "   no alarm", "bold red" if alarms else "")
        self._line("node", line)

    def _show_totals(self) -> None:
        state = self.state
        things = (
            (len(state.connections), "connection"),
            (len(state.channels), "channel"),
            (sum(row["shard_of"] is None for row in state.queues.values()), "queue"),
            (state.consumer_count, "consumer"),
            (int(state.value("messages")), "message"),
        )
        rates = (("in", ("publish",)), ("out", DELIVERED), ("acks", ("ack",)))
        line = "  ".join(f"{number:,} {what}{'s'[: number != 1]}" for number, what in things)
        line += "   " + "  ".join(f"{what} {rate(node_rate(state, *names))}/s" for what, names in rates)
        self._line("totals", Text(line))

    def _show_cause(self) -> None:
        if self.lost:
            age = span(time.monotonic() - self.took_at)
            text = f"The node does not answer: {cell(self.lost)}. It is asked again; these figures are {age} old."
            self._line("cause", Text(text, style="bold red"))
            return
        found = causes(held_back(self.state))
        if not found:
            self._line("cause", Text("Nothing holds a connection back.", style="green"))
            return
        title, sentence = found[0]
        line = Text(f"{title}. ", style="bold red")
        line.append(sentence, "not bold default")
        if found[1:]:
            line.append(f" ({len(found) - 1} more: 'warren diagnose' names them.)", "not bold default")
        self._line("cause", line)

    def _show_pages(self) -> None:
        table, line = self.table, Text()
        for at, page in enumerate(PAGES):
            text = f" {at + 1} {page.title} "
            line.append(text, "reverse bold" if page is table.page else "")
        line.append(f"  {count(len(table.keys))} {table.page.what}, by {table.column.title}")
        if table.filter:
            line.append(f", with '{cell(table.filter)}' in the name")
        if self.is_paused:
            line.append("   PAUSED", "bold yellow")
        self._line("pages", line)


def run(node_name: str, make_feed: MakeFeed) -> Any:
    """Show the screen until the operator quits."""
    return Top(node_name, make_feed).run()
