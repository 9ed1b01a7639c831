"""The version of this build: for the package's metadata, the start-up report and `warren_version` (AB-8)."""

__version__ = "0.1.0"
