"""Reading from a running broker: batches and streams, from the planner's choice of offsets to the task that reads a
range.
"""
