"""Operations that only read: listings, statistics, reports, and the log and events of a node as they come."""
