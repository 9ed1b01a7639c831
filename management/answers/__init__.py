"""What answers contain: the objects of the API with their measured values, lists that are sorted and cut into pages,
and metrics.
"""
