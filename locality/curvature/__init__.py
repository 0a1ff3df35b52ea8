"""Curvature of the loss: Hessian traces in closed form (last layer) and of every layer, the weight-curvature index, the gap.

An estimator of layer traces is a function of an `OpenNetwork` and a number of probes, and a line in `TRACES` (traces.py).
`training` may import this room. This module does not import torch, so that `locality curvature --help` is quick.
"""

from __future__ import annotations

from typing import Literal

TraceMethod = Literal["auto", "exact", "sampled", "probed"]
