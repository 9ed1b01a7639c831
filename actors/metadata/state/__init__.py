"""The rows of all virtual hosts as a state that commands change, without processes, clock, chance or disk."""
