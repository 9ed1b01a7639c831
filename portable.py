"""Portability: whether this broker avoids the facilities that only Linux has.

Each facility that Linux has and other systems lack (epoll, /proc, synced writes) stands in one module beside a portable
twin, and that module chooses between the two once, when it is imported. A broker runs on the twins on every other
system, and on Linux with `WARREN_PORTABLE=1` in its environment, so that `make test-portable` can test them here.
"""

import os
import sys

#: True if every facility must use its portable twin.
IS_PORTABLE: bool = sys.platform != "linux" or os.environ.get("WARREN_PORTABLE") == "1"
