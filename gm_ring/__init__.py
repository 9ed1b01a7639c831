"""Guaranteed Multicast: what a member of a ring says reaches all members that stay, in its order, whoever dies.

`view` says who is in the ring, `ring` is one member as a pure core, `member` the process around it. Nothing here knows
what is multicast: an *instruction* is bytes with a kind. Mirrored queues (`mirror`) are the first to use it.
"""
