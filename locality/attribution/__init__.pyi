# The names of this package: type checkers read this file, and `__init__.py` imports each name at its first use.

from .agi import adversarial_gradient_integration as adversarial_gradient_integration
from .all_at_once import attribute_all as attribute_all
from .boundary_gradients import boundary_integrated_gradients as boundary_integrated_gradients
from .boundary_gradients import boundary_saliency as boundary_saliency
from .captum_boundary_classes import BIG as BIG
from .captum_boundary_classes import BSG as BSG
from .captum_boundary_classes import BSM as BSM
from .captum_boundary_classes import BDeepLIFT as BDeepLIFT
from .captum_classes import AGI as AGI
from .captum_classes import IG as IG
from .captum_classes import SM as SM
from .captum_classes import InputXGradient as InputXGradient
from .captum_classes import SmoothGrad as SmoothGrad
from .captum_methods import CaptumMethod as CaptumMethod
from .deep_lift import boundary_deep_lift as boundary_deep_lift
from .deep_lift import deep_lift as deep_lift
from .integrated_gradients import integrated_gradients as integrated_gradients
from .methods import METHODS as METHODS
from .methods import FunctionMethod as FunctionMethod
from .methods import method as method
from .quantus import explain as explain
from .rollout import GradientRollout as GradientRollout
from .rollout import Rollout as Rollout
from .rollout import attention_rollout as attention_rollout
from .saliency import input_x_gradient as input_x_gradient
from .saliency import saliency_map as saliency_map
from .smoothgrad import boundary_smooth_gradient as boundary_smooth_gradient
from .smoothgrad import smooth_gradient as smooth_gradient

__all__: list[str]
