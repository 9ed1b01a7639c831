"""What clients do besides publishing and consuming: the operations that `bench/operations.py` measures."""
