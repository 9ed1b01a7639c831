"""The clients of a schedule: AMQP connections that do what a plan says and report to the model.

`peer` sends and receives AMQP over a simulated connection. `client` owns one connection at a time and `channel` one
channel, whose work is divided as in the broker: `publishing`, `consuming`, and `declaring` for queues and bindings.
`message_properties` decides with which properties a message is published.
"""
