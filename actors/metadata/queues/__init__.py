"""Where the queues of the metadata run: declares and deletes, homes and replicas, and whoever waits for a queue."""
