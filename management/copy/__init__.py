"""The copy of the node from which management answers: the link to the node, its objects and settings, and their
measured values over time.
"""
