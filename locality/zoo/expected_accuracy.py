"""Whether a model is as accurate as it should be: a wrong preprocessing or wrong classes show there first."""

from __future__ import annotations

from locality.statistics import wilson_interval
from locality.zoo.load import known_card

TOLERANCE = 0.05  # how far the whole interval may lie below the expected accuracy


def published_accuracy(model: str, data: str) -> float | None:
    """The accuracy on the card of a model of the catalog or of a checkpoint, if it is for this data set.

    >>> published_accuracy("shapes_cnn", "shapes"), published_accuracy("shapes_cnn", "shapes:swapped")
    (1.0, None)
    """
    card = known_card(model)
    if card is None:
        return None
    name = data if card.data == "shapes" else data.partition(":")[0]  # after `shapes:` follows another kind of images
    return card.clean if name == card.data else None


def low_accuracy_text(model: str, right: int, known: int, expected: float, source: str) -> str | None:
    """A sentence if the 95 % interval of the accuracy lies more than 0.05 below the expected one, else None.

    >>> low_accuracy_text("a", 40, 100, 0.9, "its card").partition(":")[0]
    'a has an accuracy of 40.0% on 100 images, far below the 90.0% of its card'
    >>> low_accuracy_text("a", 8, 10, 0.9, "its card")
    """
    if known == 0 or wilson_interval(right, known)[1] >= expected - TOLERANCE:
        return None
    return (
        f"{model} has an accuracy of {right / known:.1%} on {known:,} images, far below the {expected:.1%} of {source}: "
        "check the preprocessing (input size, resize, mean, std, interpolation) and the classes"
    )
