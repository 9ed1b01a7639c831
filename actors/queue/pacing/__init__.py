"""How the queue of a policy with `pace-rate` delivers evenly: what it accepts, and when it delivers."""
