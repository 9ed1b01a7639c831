"""Several nodes that are one broker. Built so far: the consensus that will order the changes of their metadata."""
