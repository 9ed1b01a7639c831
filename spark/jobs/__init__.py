"""Jobs of a pipeline as plain functions, which print nothing and end no process. `warren pipeline` has a command each.

analyse    what went through queues, as tables and a report
archive    queues into files of Parquet, every message once
capacity   advice on shards, limits, memory and disk
compact    the small files of an archive into few large ones
query      messages by id, key or condition, wherever they are
replay     archived messages into an exchange or a queue again
"""
