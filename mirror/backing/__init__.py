"""The backing queues of replicas: each is around the one that has the messages, and shares what happens to them."""
