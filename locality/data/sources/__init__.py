"""The data sets themselves: one file per source."""
