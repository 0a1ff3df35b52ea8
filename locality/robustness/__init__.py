"""How far a model resists: robust accuracy under attack (`era`), plain attacks (`attacks`), randomised smoothing."""
