"""Who acts as a part of the majority: leases, who is lost, what the leader declares, and when a node pauses."""
