"""The tables of a benchmark, and the folder they are stored in. Needs numpy, pandas and pyarrow, but not torch."""
