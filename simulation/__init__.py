"""Whole nodes on virtual time, with random work and random faults, all decided by one seed.

A **schedule** is a node on a simulated machine, clients that do what a random plan says, and faults of the machine.
While it runs, a model of the broker's promises checks what the clients receive, and invariants check what the processes
hold. `schedule.run(seed)` runs one; docs/internals/simulation.md explains how.
"""
