"""The copy of the node from which management answers: the link to the node, what it has reported, and how it was
measured over time.
"""
