"""Mirrored queues: the master tells the mirrors by a ring (`gm_ring`) what becomes of its messages.

`instructions` is what it says, `backing` the backing queue of a replica, `replica` the role of a mirror, `replication`
what a replica does with ring, row and confirms, and `mirroring` how a queue's process gets all this.
"""
