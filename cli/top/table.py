"""`TopTable`: a sorted list of any length that renders only the lines on the screen."""

from __future__ import annotations

from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...management.copy.node_state import NodeState
from .figures import TopColumn, TopPage, fitting


class TopTable(ScrollView, can_focus=True):
    """One page. The first line of the widget has the titles of the columns and does not scroll."""

    class SortedBy(Message):
        """A title was clicked: order by this column."""

        def __init__(self, column: TopColumn) -> None:
            super().__init__()
            self.column = column

    def __init__(self, state: NodeState, page: TopPage) -> None:
        super().__init__()
        self.state = state
        self.page = page
        self.column = page.columns[page.sorted_by]
        self.is_reversed = False
        self.filter = ""
        #: The keys of what is listed, in order.
        self.keys: list[Any] = []

    @property
    def room(self) -> int:
        """The width of a line without the scroll bar, in characters."""
        return self.scrollable_content_region.width

    def show(self, page: TopPage) -> None:
        """List the things of another page, from the top."""
        if page is not self.page:
            self.page, self.column, self.is_reversed = page, page.columns[page.sorted_by], False
            self.scroll_home(animate=False)
        self.update()

    def sort(self, column: TopColumn) -> None:
        """Sort by this column, or reverse the order if the list is sorted by it already."""
        self.is_reversed = not self.is_reversed if column is self.column else False
        self.column = column
        self.update()

    def sort_by_neighbour(self, step: int) -> None:
        """Sort by the shown column that is `step` columns to the right of the one that sorts the list now."""
        shown = [column for column, _ in fitting(self.page.columns, self.room)]
        at = shown.index(self.column) if self.column in shown else 0
        self.column, self.is_reversed = shown[(at + step) % len(shown)], False
        self.update()

    def update(self) -> None:
        """Filter and sort the keys again, after the state or the choice of the user has changed."""
        state, name, value = self.state, self.page.name, self.column.value
        keys = list(self.page.keys(state))
        if self.filter:
            wanted = self.filter.lower()
            keys = [key for key in keys if wanted in name(state, key).lower()]
        keys.sort(key=lambda key: name(state, key))
        values = {key: value(state, key) for key in keys}
        # Numbers begin with the largest, texts with the first of the alphabet.
        is_descending = self.is_descending(values[keys[0]] if keys else 0)
        keys.sort(key=values.__getitem__, reverse=is_descending)
        self.keys = keys
        self.virtual_size = Size(self.room, len(keys) + 1)
        self.refresh()

    def is_descending(self, value: object) -> bool:
        """Whether a list that is ordered by values like this one begins with the largest."""
        return not isinstance(value, str) != self.is_reversed

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(self.room, len(self.keys) + 1)

    def render_line(self, y: int) -> Strip:
        width = self.room
        columns = fitting(self.page.columns, width)
        if y == 0:
            return self._titles(columns).adjust_cell_length(width)
        at = self.scroll_offset.y + y - 1
        if at >= len(self.keys):
            return Strip.blank(width)
        segments = []
        for column, room in columns:
            value = column.value(self.state, self.keys[at])
            text = fitted(column.text(value), room, isinstance(value, str))
            style = "bold" if column is self.column and not column.style(value) else column.style(value)
            segments.append(Segment(f"{text} ", Style.parse(style) if style else None))
        return Strip(segments).adjust_cell_length(width)

    def _titles(self, columns: list[tuple[TopColumn, int]]) -> Strip:
        segments = []
        first = self.keys[0] if self.keys else None
        for column, room in columns:
            value = 0 if first is None else column.value(self.state, first)
            mark = ("▼" if self.is_descending(value) else "▲") if column is self.column else ""
            text = fitted(f"{column.title}{mark}", room, isinstance(value, str))
            segments.append(Segment(f"{text} ", Style(bold=True, reverse=True)))
        return Strip(segments)

    def on_click(self, event: events.Click) -> None:
        if event.y:
            return
        end = 0
        for column, room in fitting(self.page.columns, self.room):
            end += room + 1
            if event.x < end:
                self.post_message(self.SortedBy(column))
                return


def fitted(text: str, room: int, is_text: bool) -> str:
    """The text in exactly this many columns of the terminal: texts to the left, numbers to the right."""
    line = Segment(text)
    if line.cell_length > room:
        kept, _ = line.split_cells(max(room - 1, 0))
        text, line = f"{kept.text}…", Segment(f"{kept.text}…")
    padding = " " * max(room - line.cell_length, 0)
    return f"{text}{padding}" if is_text else f"{padding}{text}"
