"""Removes the clone from the import path, where `python -m pytest` puts it when it is started there.

The clone's folder `amqp` would otherwise hide the client library of that name, which kombu and Celery import. The tests
do not need the clone on the path: they import the installed package `warren`.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

sys.path[:] = [entry for entry in sys.path if Path(entry or os.curdir).resolve() != ROOT]
