"""The offline check of a data directory: `warren store verify`."""
