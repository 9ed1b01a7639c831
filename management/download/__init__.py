"""Files that the management process offers for download below `/cli/` (CM-225)."""
