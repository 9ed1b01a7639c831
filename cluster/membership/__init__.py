"""Which nodes are members of a cluster: how a node founds or joins one, who counts as down, and who may act."""
