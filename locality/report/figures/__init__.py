"""The figures of a benchmark: one file per figure."""
