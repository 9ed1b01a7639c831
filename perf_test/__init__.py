"""`warren perf-test`: a load generator for AMQP 0-9-1 brokers, with the options of RabbitMQ's PerfTest.

    options     what a test does
    connection  a connection to the broker: log in, declare, then send and receive without waiting
    deliveries  finds deliveries in what arrives; those that are alike are counted together
    topology    the exchange and the queues of a test
    producer    publishes, within the limits of rate, confirms and socket
    consumer    receives and acknowledges
    latencies   a histogram of latencies
    statistics  what was counted in an interval and in all
    runner      the event loop of all producers and consumers
    report      lines, summary and chart for people, and JSON

A test can saturate a broker from one core, because nothing is done for single messages where it can be done for many:
a batch of publishes is a multiplied `bytes`, and a batch of deliveries is compared with its first one by strided
slices.
"""
