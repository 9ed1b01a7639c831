"""Layer 0: where actors live. Imports neither amqp nor store nor actors.

`loop_base` runs every actor of a system on one thread around epoll; `process` is the actor
class everything above is written with; `outside` is the way in for ordinary threads and asyncio;
`credit` is the bookkeeping that keeps mailboxes bounded; `sim_world` and the other `sim_` modules run
the same actors on virtual time.
"""
