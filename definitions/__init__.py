"""Definitions, as RabbitMQ calls what operators set: users, permissions, policies, parameters and limits."""
