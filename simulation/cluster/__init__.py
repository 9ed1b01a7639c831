"""Several whole nodes that are one cluster, on simulated machines and a simulated network.

A **schedule** boots the nodes, which found their cluster over real links, and lets clients work on all of them while
machines and the network fail. `schedule.run(seed)` runs one; docs/internals/simulation.md explains how.
"""
