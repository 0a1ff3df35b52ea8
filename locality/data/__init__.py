"""Images with boxes: sources, manifests, selection, and fitting to a model."""
