"""Operations that act on a running node, its queues and connections, and its cluster."""
