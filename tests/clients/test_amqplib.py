"""node's client library amqplib. `make` installs its packages beside conversation.js with `npm ci`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = Path(__file__).parent / "node"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules" / "amqplib").is_dir(),
    reason="node or its amqplib is not installed (`npm ci` in tests/clients/node)",
)


def test_a_conversation(broker_url, name):
    """amqplib reports confirms, prefetch, returns, topics, large bodies and a channel error as expected."""
    result = subprocess.run(
        ["node", "conversation.js", broker_url, name], cwd=NODE, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert dict(json.loads(line) for line in result.stdout.splitlines()) == {
        "headers": {"n": 1, "text": "ü", "nested": {"list": [1, "two", True]}},
        "count after get": 99,
        "in order": True,
        "returned": [312, "NO_ROUTE", "lost"],
        "topic": ["hit", False],
        "large": True,
        "refused": [404, True],
        "closed": True,
    }
