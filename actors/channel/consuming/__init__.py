"""Consuming on a channel: its consumers, their deliveries and limits, and what awaits an acknowledgement."""
