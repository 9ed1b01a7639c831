"""Guaranteed Multicast: all instructions of a speaker reach all members that stay in the ring, in order, whoever dies.

`view` has the members of a ring, `ring` is one member as a pure core, `member` the process around it. This folder does
not interpret what is multicast: an *instruction* is bytes with a kind. Mirrored queues (`mirror`) use it.
"""
