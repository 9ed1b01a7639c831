"""Measures how long one client waits while another does something large; see `__main__`."""
