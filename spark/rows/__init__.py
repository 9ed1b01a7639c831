"""From messages to rows: blocks, bodies, properties, and the columns of record batches."""
