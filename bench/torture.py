"""Kill a broker hundreds of times while clients work, and check each time that no message is missing or surplus.

    python -m warren.bench.torture --kills 500              half with very small files, half with real file sizes
    python -m warren.bench.torture --kills 40 --seed 17     makes the same choices as any other run with that seed
    python -m warren.bench.torture --kills 500 --directory /mnt/disk

`tests/torture/torture.py` and `model.py` describe what is done and checked. After a failure the directory is kept:
`account` lists the events with their times, `broker.log` is the broker's log, `before` is the data directory before the
last start, and `data` the data directory as the failed broker left it.

Exit code 0 if no check failed, else 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from ..tests.torture.broker import AS_IT_IS, SMALL
from ..tests.torture.torture import Torture

PARTS = (("small files", SMALL), ("files as they are", AS_IT_IS))


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m warren.bench.torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500, metavar="N", help="number of kills (default %(default)s)")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1_000_000),
        metavar="N",
        help="seed of all choices (default: random)",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to create the test directories (default %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the outcome")
    options = parser.parse_args(arguments)
    if options.kills < 2:
        parser.error("--kills must be at least 2: one for each kind of files")
    return options


def main() -> int:
    options = parsed(sys.argv[1:])
    print(f"seed {options.seed}", flush=True)
    left = options.kills
    for number, (name, files) in enumerate(PARTS):
        kills = left // (len(PARTS) - number)
        left -= kills
        directory = Path(tempfile.mkdtemp(prefix="warren-torture-", dir=options.directory))
        print(f"{kills} kills, {name}, in {directory}", flush=True)
        began = time.monotonic()
        torture = Torture(directory, options.seed + number, files, on_note=_silent if options.quiet else _progress)
        try:
            torture.run(kills)
        except Exception:
            traceback.print_exc()
            print(
                f"\nFAILED after {torture.kills} kills, seed {options.seed}. "
                f"The account, the log, and the data before and after are in {directory}",
                file=sys.stderr,
            )
            return 1
        shutil.rmtree(directory)
        model = torture.model
        print(
            f"survived {torture.kills} kills ({torture.kills_in_recovery} in recovery, {torture.kills_in_stop} while "
            f"stopping) and {torture.stops} clean stops in {time.monotonic() - began:.0f} s: "
            f"{model.confirmed:,} confirmed, {model.delivered:,} delivered, {model.settled:,} settled, "
            f"{model.found:,} found after starts",
            flush=True,
        )
    return 0


def _progress(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Print nothing."""


if __name__ == "__main__":
    sys.exit(main())
