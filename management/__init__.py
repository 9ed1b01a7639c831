"""Management: the HTTP API that RabbitMQ's tools use and metrics for Prometheus, in a process of their own.

The node starts the process beside itself (`actors/management`). It follows the node over the control protocol,
keeps a copy of what it has to show, and answers from that copy, so that no request takes the broker's interpreter.
"""
