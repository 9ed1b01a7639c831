"""How a node is part of a cluster, as its own processes see it. A node that is alone has nothing of it."""
