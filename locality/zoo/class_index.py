"""The logit of a class that a person names."""

from __future__ import annotations

from collections.abc import Sequence

from locality.errors import ArgumentError, did_you_mean
from locality.imagenet_classes import class_word

MOST_LISTED = 20  # classes that an error names


def class_index(name: str | int, classes: Sequence[str], argument: str) -> int:
    """The index of a class among a model's classes: a number, one of their names, or the everyday name of a WordNet id.

    >>> class_index("goldfish", ("n01440764", "n01443537"), "to"), class_index("0", ("cat", "dog"), "to")
    (1, 0)
    >>> class_index("dgo", ("cat", "dog"), "to")
    Traceback (most recent call last):
    locality.errors.ArgumentError: `to` must be a class of the model or its number, got 'dgo': did you mean 'dog'?
    """
    if isinstance(name, int) or name.isdecimal():
        index = int(name)
        if classes and index >= len(classes):
            raise ArgumentError(argument, f"a class from 0 to {len(classes) - 1}", index)
        return index
    if name in classes:
        return list(classes).index(name)
    words = [class_word(known) for known in classes]
    matches = [index for index, word in enumerate(words) if word.lower() == name.lower()]
    if len(matches) > 1:
        listed = ", ".join(classes[index] for index in matches)
        raise ArgumentError(argument, "the name of one class", name, f"it is that of {listed}")
    if not matches:
        hint = did_you_mean(name, [*words, *classes]) if classes else "its classes are unknown, so pass the number"
        if not hint and len(words) <= MOST_LISTED:
            hint = f"its classes are {', '.join(words)}"
        raise ArgumentError(argument, "a class of the model or its number", name, hint)
    return matches[0]
