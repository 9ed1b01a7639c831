"""The parts of the process of a queue, each with the state that it owns."""
