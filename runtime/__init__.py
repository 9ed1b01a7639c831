"""Layer 0: the runtime of the actors. It imports neither amqp nor store nor actors.

process      `Process`, the base class of all actors of the broker
contract     contracts: the messages that a process takes, with their types
system/      `ActorBase`: the life of the actors of one system, on either of the two bases below; addresses and names
loop/        `LoopBase`, which runs all actors on one thread; the way in for other threads
sim/         `SimBase` and `SimWorld`, which run the same actors in simulated time
stock_host   processes on Thespian's own system bases
machine/     the memory and the sockets of the machine
credit       the bookkeeping that bounds the mailboxes
"""
