import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root():
    """The repository's root, which is the package."""
    return ROOT


@pytest.fixture(scope="session")
def layers():
    """layers.py, the checker; tests are imported by path, so modules beside them are loaded by path too."""
    spec = importlib.util.spec_from_file_location("architecture_layers", Path(__file__).with_name("layers.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
