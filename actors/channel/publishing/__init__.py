"""Publishing on a channel: which queues get a message, and when its publisher gets the confirm."""
