"""The measurements of a benchmark. To add one, write its file and add its line here."""

from __future__ import annotations

from locality.runner.measurement import Measurement
from locality.runner.measurements.certified import CERTIFIED
from locality.runner.measurements.curvature import CURVATURE
from locality.runner.measurements.faithfulness import FAITHFULNESS
from locality.runner.measurements.gallery import GALLERY
from locality.runner.measurements.layer_randomisation import LAYER_RANDOMISATION
from locality.runner.measurements.localisation import LOCALISATION_SCORES
from locality.runner.measurements.locality import LOCALITY
from locality.runner.measurements.regions import REGION_TESTS
from locality.runner.measurements.removal import REMOVAL
from locality.runner.measurements.robust import ROBUST
from locality.runner.measurements.searches import SEARCHES
from locality.runner.measurements.sensitivity import SENSITIVITY
from locality.runner.measurements.similarity import SIMILARITY

# In the order of their units.
MEASUREMENTS: dict[str, Measurement] = {
    "locality": LOCALITY,
    "similarity": SIMILARITY,
    "localisation": LOCALISATION_SCORES,
    "regions": REGION_TESTS,
    "robust": ROBUST,
    "certified": CERTIFIED,
    "faithfulness": FAITHFULNESS,
    "removal": REMOVAL,
    "sensitivity": SENSITIVITY,
    "layer_randomisation": LAYER_RANDOMISATION,
    "searches": SEARCHES,
    "curvature": CURVATURE,
    "gallery": GALLERY,
}
