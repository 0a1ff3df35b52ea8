"""How well maps agree with the region a person marked, and whether that number can be trusted."""
