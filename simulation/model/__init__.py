"""What a broker promises, in a form that a schedule can check while it runs.

`copies` and `queue_model` model what clients can see: the state of each message in each queue, and whether the queue
exists. Clients report to the model what they send and receive. `invariants` examines what clients cannot see: credit,
mailboxes and counts inside the processes. Whatever is wrong raises `PromiseBroken`.
"""
