"""Models: a catalog of names, the networks we train ourselves, and loaders that verify what they load."""
