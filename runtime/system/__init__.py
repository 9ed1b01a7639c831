"""The system that actors live in: cells, addresses, names, monitors, and systems on other nodes."""
