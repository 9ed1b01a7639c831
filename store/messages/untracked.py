"""Lists of messages that the garbage collector does not examine.

A collection stops all processes, and costs 5 ns or more for each reference in the containers that it examines: 200 ms
with 3 million waiting messages, and 6 ms without the lists in which they are. Such a list has nothing but bytes, so it
cannot belong to a reference cycle, and reference counting frees it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

#: Lists with fewer messages stay with the collector, because the call takes 0.3 µs.
UNTRACKED_FROM = 128


def _c_function() -> Callable[[Sequence[object]], None]:
    try:
        function = ctypes.pythonapi.PyObject_GC_UnTrack
    except AttributeError:  # another Python than CPython
        return lambda untracked: None
    function.argtypes, function.restype = [ctypes.py_object], None
    return function


#: Take a list away from the collector for ever. A cycle of which it is a part would never be freed.
untrack = _c_function()
