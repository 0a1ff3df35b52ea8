"""Training, standard and robust: a recipe describes a run, `train` performs it, a card reports the result."""
