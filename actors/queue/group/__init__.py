"""Group queues: a queue that stores nothing and delivers the messages of its members (QP-75 to QP-80)."""
