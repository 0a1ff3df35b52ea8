# The public names, listed once: type checkers read this file, and `__init__.py` imports each name at its first use.

from .attribution import AGI as AGI
from .attribution import BIG as BIG
from .attribution import BSM as BSM
from .attribution import IG as IG
from .attribution import METHODS as METHODS
from .attribution import SM as SM
from .attribution import InputXGradient as InputXGradient
from .attribution import SmoothGrad as SmoothGrad
from .attribution import attribute_all as attribute_all
from .boundary import SEARCHES as SEARCHES
from .boundary import find_boundary as find_boundary
from .certified import CERTIFICATES as CERTIFICATES
from .certified.certified_accuracy import certified_accuracy as certified_accuracy
from .curvature.gap import robust_gap as robust_gap
from .curvature.index import weight_curvature as weight_curvature
from .curvature.traces import layer_traces as layer_traces
from .data.boxes import box_mask as box_mask
from .data.boxes import box_share as box_share
from .data.dataset import ImageDataset as ImageDataset
from .data.dataset import load_dataset as load_dataset
from .data.dataset import stack as stack
from .data.preprocess import center_crop as center_crop
from .data.preprocess import fit as fit
from .data.preprocess import flip as flip
from .data.preprocess import resize as resize
from .errors import ArgumentError as ArgumentError
from .errors import DataError as DataError
from .errors import Fault as Fault
from .errors import ModelError as ModelError
from .report.explanation import explain_image as explain_image
from .robustness.landscape import input_landscape as input_landscape
from .robustness.landscape import weight_landscape as weight_landscape
from .robustness.robust_accuracy import robust_accuracy as robust_accuracy
from .robustness.transfer import transfer_accuracy as transfer_accuracy
from .runner.evaluate import evaluate as evaluate
from .scores import SCORES as SCORES
from .scores import score_maps as score_maps
from .scores.faithfulness import faithfulness as faithfulness
from .scores.layer_randomisation import sanity_check as sanity_check
from .scores.locality import lift as lift
from .scores.locality import locality_curve as locality_curve
from .scores.locality import locality_scores as locality_scores
from .scores.similarity import similarity as similarity
from .types import Batch as Batch
from .types import Boundary as Boundary
from .types import Box as Box
from .types import LocalityScores as LocalityScores
from .types import ModelSpec as ModelSpec
from .types import PathMaps as PathMaps
from .types import Sample as Sample
from .types import Threat as Threat
from .zoo.load import load_model as load_model
from .zoo.model_card import ModelCard as ModelCard

__version__: str
__all__: list[str]
