"""`warren top`: a live picture of a node in the terminal.

`feed` follows the node in a thread, `figures` turns its statistics into columns, `table` draws a sorted list of any
length, and `app` is the screen. Only `app` and `table` import Textual, which the extra `top` installs.
"""
