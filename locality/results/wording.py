"""Words that sentences share: lists and counts."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str]) -> str:
    """The words as a list in a sentence.

    >>> listed(["SM"]), listed(["SM", "IG", "BIG"])
    ('SM', 'SM, IG and BIG')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "pair"), counted(1200, "image")
    ('1 pair', '1,200 images')
    """
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
