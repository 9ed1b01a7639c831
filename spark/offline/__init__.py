"""Reading the data directory of a stopped broker."""
