"""Operations that only look: listings, statistics, reports, and what a node writes as it happens."""
