"""`History`: measured values over time, for rates and charts, in bounded memory (CM-249).

A *track* has the values of one object: a queue, a channel, the whole node. Each tick of the statistics interval a track
whose object has changed gets a sample; one that did not change costs nothing, because between two samples the values
are those of the earlier one. A rate is the increase since the tick before, divided by the seconds in between.

Samples are kept at several distances: every tick for ten minutes, one a minute for an hour, and so on (`Retention`).
Only the `TRACKS_KEPT` objects that changed last keep more samples than a rate needs, so that a hundred thousand busy
queues cannot fill the memory.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence

#: Pairs of seconds kept and seconds between two samples.
Retention = tuple[tuple[float, float], ...]

#: The retention of the node and of single objects (cli-and-management section 10.1).
GLOBAL_RETENTION: Retention = ((605.0, 5.0), (3_660.0, 60.0), (29_400.0, 600.0), (86_400.0, 1_800.0))
OBJECT_RETENTION: Retention = ((605.0, 5.0), (3_600.0, 60.0))

#: Objects whose samples are kept; about 15 KB each.
TRACKS_KEPT = 1_000

#: Samples that one answer may have (CM-249).
SAMPLES_MAX = 500


class _Ring:
    """Samples of `width` values each, at least `distance` seconds apart; the oldest are overwritten."""

    __slots__ = ("_distance", "_most", "_start", "_times", "_values", "_width")

    def __init__(self, width: int, kept: float, distance: float) -> None:
        self._width = width
        self._distance = distance
        self._most = int(kept / distance) + 2
        self._start = 0
        self._times = array("d")
        self._values = array("d")

    def add(self, time: float, values: Sequence[float]) -> None:
        count, width = len(self._times), self._width
        if count:
            last = (self._start + count - 1) % count if count == self._most else count - 1
            if time - self._times[last] < self._distance * 0.999:
                # Of several samples in one period of `distance` seconds only the newest is kept.
                if int(self._times[last] / self._distance) == int(time / self._distance):
                    self._values[last * width : (last + 1) * width] = array("d", values)
                    return
        if count < self._most:
            self._times.append(time)
            self._values.extend(values)
            return
        at = self._start
        self._times[at] = time
        self._values[at * width : (at + 1) * width] = array("d", values)
        self._start = (at + 1) % count

    def samples(self, column: int) -> list[tuple[float, float]]:
        """Times and values of one column, the oldest first."""
        count = len(self._times)
        order = [*range(self._start, count), *range(self._start)]
        return [(self._times[at], self._values[at * self._width + column]) for at in order]


class Track:
    """The values of one object. Counters only grow; lengths and sizes go up and down."""

    __slots__ = ("_rings", "_seconds", "before", "tick", "values")

    def __init__(self, values: Sequence[float], tick: int) -> None:
        #: The newest values, and those of the tick before the last change.
        self.values = self.before = tuple(values)
        #: The tick at which `before` was replaced.
        self.tick = tick
        self._seconds = 1.0
        self._rings: list[_Ring] | None = None

    def rate(self, column: int, tick: int) -> float:
        """The increase per second in the interval before this tick."""
        if self.tick != tick:
            return 0.0
        return (self.values[column] - self.before[column]) / self._seconds

    def sample(self, values: Sequence[float], tick: int, time: float, seconds: float, rings: list[_Ring]) -> None:
        self.before, self.values = self.values, tuple(values)
        self.tick, self._seconds = tick, max(seconds, 0.001)
        self._rings = rings
        for ring in rings:
            ring.add(time, self.values)

    @property
    def rings(self) -> list[_Ring]:
        return self._rings or []

    def forget(self) -> None:
        self._rings = None

    def range(self, column: int, age: float, step: float, now: float) -> list[tuple[int, float]]:
        """Samples of one column, `step` seconds apart over `age` seconds, as (ms, value), the newest first."""
        known: dict[float, float] = {}
        for ring in reversed(self.rings):
            known.update(ring.samples(column))
        times = sorted(known)
        end = int(now / step) * step
        found: list[tuple[int, float]] = []
        at = len(times) - 1
        for number in range(int(age / step) + 1):
            time = end - number * step
            while at >= 0 and times[at] > time:
                at -= 1
            if at < 0:
                break
            found.append((int(time * 1000), known[times[at]]))
        return found


class History:
    """The tracks of all objects, and the ticks."""

    def __init__(self) -> None:
        self.tick = 0
        #: When the last tick was, in seconds since 1970.
        self.time = 0.0
        #: Seconds between the last two ticks.
        self.seconds = 5.0
        self._tracks: dict[Hashable, Track] = {}
        #: Objects that keep samples, the one that changed last at the end.
        self._kept: OrderedDict[Hashable, None] = OrderedDict()

    def begin_tick(self, time: float) -> None:
        self.seconds = max(time - self.time, 0.001) if self.tick else self.seconds
        self.tick += 1
        self.time = time

    def put(self, key: Hashable, values: Sequence[float], retention: Retention = OBJECT_RETENTION) -> None:
        """Record the values of an object that has changed, at the present tick."""
        track = self._tracks.get(key)
        if track is None:
            # An object of the first tick is older than this process, so its values are no increase. One that appears
            # later was created since the last tick and began with zeros.
            track = self._tracks[key] = Track([0.0] * len(values), self.tick)
            if self.tick <= 1:
                track.values = track.before = tuple(values)
        rings = track.rings or [_Ring(len(values), kept, distance) for kept, distance in retention]
        track.sample(values, self.tick, self.time, self.seconds, rings)
        if retention is GLOBAL_RETENTION:
            return
        self._kept[key] = None
        self._kept.move_to_end(key)
        while len(self._kept) > TRACKS_KEPT:
            oldest, _ = self._kept.popitem(last=False)
            self._tracks[oldest].forget()

    def get(self, key: Hashable) -> Track | None:
        return self._tracks.get(key)

    def remove(self, key: Hashable) -> None:
        self._tracks.pop(key, None)
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget all samples and rates."""
        self._tracks.clear()
        self._kept.clear()
