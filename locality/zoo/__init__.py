"""Models: the catalog, the networks trained with locality, and loaders that verify what they load."""
