"""What processes send each other: one contract for each kind of process, and the shapes of the messages' fields.

The contracts import values and each other, never a process or a part of one, and no ring of imports goes through them.
The message `start`, with which its creator starts a process, is in `actors/context/starting.py`, because the context of
the node that it carries has addresses of processes.
"""
