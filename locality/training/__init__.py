"""Training, standard and robust: a recipe says what, `train` does it, a card says what came out."""
