"""The version of this build, read by the package's metadata, the start-up report and `warren_version` on the wire (AB-8)."""

__version__ = "0.1.0"
