"""Conversations: files that list what clients and a machine do, step by step, and what each step leads to."""
