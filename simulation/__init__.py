"""Whole nodes on virtual time, under random work, with everything that can go wrong: one seed decides all of it.

A *schedule* is a node on a simulated machine, clients that do what a random plan says, and what happens to the machine meanwhile. While it runs, what the clients see
is held against a model of what a broker promises, and what the processes hold against invariants. `run(seed)` runs one; see docs/internals/simulation.md.
"""
