"""Kill a broker hundreds of times while clients work, and look each time whether everything that was confirmed is there, in order, and nothing else.

    python -m warren.bench.torture --kills 500              half of them with very small files, which begin and end all the time, half with files as they are
    python -m warren.bench.torture --kills 40 --seed 17     the same choices as any other run with that seed
    python -m warren.bench.torture --kills 500 --directory /mnt/disk

What is done and what is checked is described in `tests/torture/torture.py` and `model.py`. When something is wrong the directory stays: its `account` says what happened when,
`broker.log` what the broker said, `before` is the data directory as it was before the last start, and `data` as the failed broker left it.

Exit code 0 when all kills were survived, 1 when not.
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
    parser.add_argument("--kills", type=int, default=500, metavar="N", help="in all (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), metavar="N", help="of all choices (default: any)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where the directories are made (default %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="only the outcome")
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
        torture = Torture(directory, options.seed + number, files, tell=_silent if options.quiet else _progress)
        try:
            torture.run(kills)
        except Exception:
            traceback.print_exc()
            print(
                f"\nFAILED after {torture.kills} kills, seed {options.seed}. The account, the log, and the data before and after are in {directory}",
                file=sys.stderr,
            )
            return 1
        shutil.rmtree(directory)
        model = torture.model
        print(
            f"survived {torture.kills} kills ({torture.kills_in_recovery} while it recovered, {torture.kills_in_stop} while it stopped) and {torture.stops} clean stops "
            f"in {time.monotonic() - began:.0f} s: {model.confirmed:,} confirmed, {model.delivered:,} delivered, {model.settled:,} settled, "
            f"{model.found:,} found after starts",
            flush=True,
        )
    return 0


def _progress(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    """Nothing."""


if __name__ == "__main__":
    sys.exit(main())
