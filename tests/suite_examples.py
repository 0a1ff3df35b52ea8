"""Suites that several tests share; their models are in suite_models.py."""

from locality.runner.measurements.certified import CertifiedSettings
from locality.runner.measurements.curvature import CurvatureSettings
from locality.runner.measurements.faithfulness import FaithfulnessSettings
from locality.runner.measurements.gallery import GallerySettings
from locality.runner.measurements.layer_randomisation import LayerRandomisationSettings
from locality.runner.measurements.localisation import LocalisationSettings
from locality.runner.measurements.regions import RegionsSettings
from locality.runner.measurements.removal import RemovalSettings
from locality.runner.measurements.robust import RobustSettings
from locality.runner.measurements.searches import SearchesSettings
from locality.runner.measurements.sensitivity import SensitivitySettings
from locality.runner.measurements.similarity import SimilaritySettings
from locality.runner.suite import DataChoice, ModelChoice, Suite

STEADY, OTHER = "suite_models:steady", "suite_models:other"
# Every measurement on a few images of two small networks.
EVERYTHING = Suite(
    "everything",
    (ModelChoice("steady", STEADY, training="standard"), ModelChoice("other", OTHER, family="steady", training="at")),
    DataChoice("shapes", limit=3, options=(("count", 20),)),
    block=2,
    measurements={
        "gallery": (GallerySettings(2),),
        "similarity": (SimilaritySettings(),),
        "regions": (RegionsSettings(draws=1, limit=2),),
        "robust": (RobustSettings("linf", 8 / 255, "pgd20", limit=3, batch_size=2),),
        "certified": (CertifiedSettings("smoothing", options={"samples": 5, "selection_samples": 2}, limit=2),),
        "faithfulness": (FaithfulnessSettings(("SM", "IG", "BIG"), limit=2, samples=3),),
        "localisation": (LocalisationSettings(),),
        "removal": (RemovalSettings(("SM", "BIG"), limit=2, steps=3, shares=(0.5,)),),
        "sensitivity": (SensitivitySettings(("SM", "BIG"), limit=2, samples=1),),
        "layer_randomisation": (LayerRandomisationSettings(("SM", "BIG"), limit=2, layers_at_once=1, models=("steady",)),),
        "searches": (SearchesSettings(("fast",), limit=2),),
        "curvature": (CurvatureSettings(steps=2, train="shapes", limit=3),),
    },
)
