"""Clocks that pace queues, and the process that holds those that several queues share."""
