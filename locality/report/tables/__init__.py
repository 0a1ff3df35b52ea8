"""Tables of a benchmark: what they hold, and how they are written."""
