"""Which pixels a model relies on: SM, IG, BSM, BIG and more, as pure functions and in Captum's calling convention.

METHODS is a plain dictionary of classes, in `methods.py`. A class is constructed with a model; `attribute` returns maps:

>>> import torch
>>> from locality.attribution import METHODS
>>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
>>> for name in ("SM", "IG", "BIG"):  # BIG starts at the boundary, (0.6, 0.6)
...     print(name, [round(value, 2) + 0.0 for value in METHODS[name](model).attribute(images).flatten().tolist()])
SM [1.0, 0.0]
IG [0.8, 0.0]
BIG [0.2, 0.0]
>>> sorted(METHODS)
['AGI', 'BDeepLIFT', 'BIG', 'BSG', 'BSM', 'GradientRollout', 'IG', 'InputXGradient', 'Rollout', 'SM', 'SmoothGrad']
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
