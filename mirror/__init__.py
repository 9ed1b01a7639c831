"""Mirrored queues: the master sends the mirrors, by a ring (`gm_ring`), an instruction for each change of its messages.

`instructions` encodes them, `backing` is the backing queue of a replica, `replica` the role of a mirror, `replication`
what a replica does with ring, row and confirms, and `mirroring` how a queue's process gets all this.
"""
