"""The bracket of a boundary point: the nearest boundary is no nearer than the certified radius, no farther than the point.

A search gives an upper bound on the distance of the decision boundary and a certificate a lower one. Together they are an
error bar of BSM and BIG, whose maps start at the point. Searches do not import certificates, so the radius is attached
here, afterwards.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from locality.certified.centroid import Centroid
from locality.certified.certificate import rounded_down
from locality.certified.lipschitz import Lipschitz
from locality.errors import ArgumentError
from locality.types import Boundary
from locality.zoo.nets.lipschitz import LipschitzNet
from locality.zoo.pixel_model import PixelModel


class FalseCertificateError(ArithmeticError):
    """A point inside a certified radius contradicts it: the bound is not one of this network."""


def has_small_bound(model: nn.Module) -> bool:
    """Whether the network is made for small Lipschitz constants, so that radii are worth a float64 pass per image.

    Other networks may have a bound, too, but one so large that their radii say nothing.
    """
    return isinstance(model.net if isinstance(model, PixelModel) else model, LipschitzNet)


def certify_boundary(
    model: nn.Module, images: Tensor, boundary: Boundary, by: Lipschitz | Centroid | None = None
) -> Boundary:
    """The boundary with `radius`, the certified one of each image: radius ≤ distance of the nearest boundary ≤ `distance`.

    A radius of 0 states nothing. A found point inside its radius is an error, unless rounding explains it: points are found
    in float32, and radii are about float64. There the radius is cut to the distance.

    >>> from locality.boundary import find_boundary
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
    >>> images = torch.tensor([0.8, 0.2, 0.5, 0.5]).view(1, 1, 2, 2)
    >>> edge = certify_boundary(model, images, find_boundary(model, images))
    >>> round(edge.radius.item(), 3), round(edge.distance.item(), 3)  # |0.8 − 0.2|/√2, from both sides
    (0.424, 0.424)
    """
    # Searches leave the class with the largest logit, whether the model abstains or not.
    certifier = by or (Centroid("class") if hasattr(model, "abstains") else Lipschitz())
    points, labels = boundary.points.detach().cpu(), boundary.labels.cpu()
    found, stated = boundary.found.cpu(), boundary.distance.cpu()
    if images.shape != points.shape:
        raise ArgumentError("images", f"those of the boundary, of shape {tuple(points.shape)}", tuple(images.shape))
    distance = (points.double() - images.detach().cpu().double()).flatten(1).norm(dim=1)
    if bool((found & ((distance - stated).abs() > 1e-3 * distance)).any()):
        raise ArgumentError("boundary", "of these images, with distances in ℓ2", "other distances")
    certificate = certifier(model, images, bounds=None)
    radius = torch.where(certificate.prediction == labels, certificate.radius, 0.0)
    inside = found & (distance < radius)
    if bool(inside.any()):
        _check_inside(model, points, labels, radius - distance, inside, certifier)
    kept = torch.minimum(rounded_down(radius), stated.float())
    return replace(boundary, radius=kept.to(boundary.distance.device))


def _check_inside(
    model: nn.Module, points: Tensor, labels: Tensor, left: Tensor, inside: Tensor, certifier: Lipschitz | Centroid
) -> None:
    """Raise unless the certificates of the points agree: nearer by d, the radius is smaller by d at most."""
    again = certifier(model, points[inside], bounds=None)
    # 1e-6: rounding errors, which are subtracted from both radii, differ between the image and the point.
    agrees = (again.prediction == labels[inside]) & (again.radius >= left[inside] * (1 - 1e-6) - 1e-9)
    if not bool(agrees.all()):
        first = int(inside.nonzero()[:, 0][~agrees][0])
        raise FalseCertificateError(
            f"the boundary point of image {first} lies {float(left[first]):.3g} inside its certified radius: the "
            "certificate is false, so trust none of this model's, and report how it was made"
        )
