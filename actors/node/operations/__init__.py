"""The operations that an operator can have a node perform, by the names of RabbitMQ's commands.

`catalogue` imports all of them. Commands import `columns` and `registry` alone, which costs them little time.
"""
