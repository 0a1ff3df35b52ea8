"""locality: does an image classifier look at the object?

Names are imported when they are first used, so that `import locality` and `locality --help` do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locality.attribution import AGI as AGI
    from locality.attribution import BIG as BIG
    from locality.attribution import BSM as BSM
    from locality.attribution import IG as IG
    from locality.attribution import METHODS as METHODS
    from locality.attribution import SM as SM
    from locality.attribution import InputXGradient as InputXGradient
    from locality.attribution import SmoothGrad as SmoothGrad
    from locality.attribution import attribute_all as attribute_all
    from locality.boundary import SEARCHES as SEARCHES
    from locality.boundary import find_boundary as find_boundary
    from locality.data.boxes import box_mask as box_mask
    from locality.data.boxes import box_share as box_share
    from locality.data.dataset import ImageDataset as ImageDataset
    from locality.data.dataset import load_dataset as load_dataset
    from locality.data.dataset import stack as stack
    from locality.data.preprocess import center_crop as center_crop
    from locality.data.preprocess import fit as fit
    from locality.data.preprocess import flip as flip
    from locality.data.preprocess import resize as resize
    from locality.errors import DataError as DataError
    from locality.errors import Fault as Fault
    from locality.report.explanation import explain_image as explain_image
    from locality.robustness.robust_accuracy import robust_accuracy as robust_accuracy
    from locality.runner.evaluate import evaluate as evaluate
    from locality.scores.faithfulness import faithfulness as faithfulness
    from locality.scores.layer_randomisation import sanity_check as sanity_check
    from locality.scores.locality import lift as lift
    from locality.scores.locality import locality_curve as locality_curve
    from locality.scores.locality import locality_scores as locality_scores
    from locality.scores.similarity import similarity as similarity
    from locality.types import Batch as Batch
    from locality.types import Boundary as Boundary
    from locality.types import Box as Box
    from locality.types import LocalityScores as LocalityScores
    from locality.types import ModelSpec as ModelSpec
    from locality.types import PathMaps as PathMaps
    from locality.types import Sample as Sample
    from locality.zoo.load import load_model as load_model

__version__ = "0.1.0"

# Public name → the module that has it.
_HOMES = {
    "AGI": "locality.attribution",
    "BIG": "locality.attribution",
    "BSM": "locality.attribution",
    "IG": "locality.attribution",
    "InputXGradient": "locality.attribution",
    "METHODS": "locality.attribution",
    "SM": "locality.attribution",
    "SmoothGrad": "locality.attribution",
    "attribute_all": "locality.attribution",
    "SEARCHES": "locality.boundary",
    "find_boundary": "locality.boundary",
    "evaluate": "locality.runner.evaluate",
    "load_model": "locality.zoo.load",
    "locality_scores": "locality.scores.locality",
    "locality_curve": "locality.scores.locality",
    "lift": "locality.scores.locality",
    "faithfulness": "locality.scores.faithfulness",
    "sanity_check": "locality.scores.layer_randomisation",
    "similarity": "locality.scores.similarity",
    "robust_accuracy": "locality.robustness.robust_accuracy",
    "explain_image": "locality.report.explanation",
    "box_mask": "locality.data.boxes",
    "box_share": "locality.data.boxes",
    "ImageDataset": "locality.data.dataset",
    "load_dataset": "locality.data.dataset",
    "stack": "locality.data.dataset",
    "center_crop": "locality.data.preprocess",
    "fit": "locality.data.preprocess",
    "flip": "locality.data.preprocess",
    "resize": "locality.data.preprocess",
    "Batch": "locality.types",
    "Boundary": "locality.types",
    "Box": "locality.types",
    "DataError": "locality.errors",
    "Fault": "locality.errors",
    "LocalityScores": "locality.types",
    "ModelSpec": "locality.types",
    "PathMaps": "locality.types",
    "Sample": "locality.types",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'locality' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
