"""The operations that an operator can have a node perform, by the names of RabbitMQ's commands."""
