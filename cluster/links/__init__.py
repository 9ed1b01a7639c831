"""Links: the connections between the nodes of a cluster, and what may cross them."""
