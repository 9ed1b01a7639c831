"""The handlers of requests, cut by what they do: read, act as a client, set what operators set, check the node's
health.
"""
