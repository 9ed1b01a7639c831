"""The handlers of requests, divided by what they do: read, act as a client, set what operators set, check the node's
health.
"""
