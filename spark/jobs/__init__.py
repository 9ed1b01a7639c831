"""Jobs of a pipeline as plain functions, which print nothing and end no process. `warren pipeline` has a command each.

archive    queues into files of Parquet, every message once
replay     archived messages into an exchange or a queue again
"""
