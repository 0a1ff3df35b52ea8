"""Weight shifts, by the names that recipes use: the weights at which the loss is evaluated.

The step is then made from the network's own weights. A new one is a new file and a new line here.
"""

from __future__ import annotations

from locality.training.step import WeightShift
from locality.training.weight_shifts.awp import Awp, Awpt
from locality.training.weight_shifts.no_shift import NoShift
from locality.training.weight_shifts.sam import Sam

WEIGHT_SHIFTS: dict[str, type[WeightShift]] = {
    "none": NoShift,
    "awp": Awp,
    "awpt": Awpt,
    "sam": Sam,
}
