"""Which class of a model a class of the data is: by its name, never by a guess.

A name of the data matches a class of the model if, in this order,

1. both are equal;
2. both are equal without regard to case, `_`, `-` and spaces: `Golden_Retriever` is `golden retriever`;
3. one is a WordNet id and the other is one of its words: `tabby cat` is n02123045, "tabby, tabby cat".

Two different WordNet ids never match. A name that fits several classes of the model (`crane`, a bird and a machine) matches
none of them. What matches nothing is listed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from locality.imagenet_classes import class_words, is_wnid


@dataclass(frozen=True)
class ClassMatch:
    """The model's class of each name of the data."""

    index: dict[str, int]  # name ↦ index of the logit
    by_name: dict[str, str]  # name ↦ the model's class, where the two are written differently
    unmatched: tuple[str, ...]
    ambiguous: dict[str, tuple[str, ...]]  # name ↦ the classes of the model that it fits; they are unmatched, too


def match_classes(names: Iterable[str], classes: Sequence[str]) -> ClassMatch:
    """Match names of the data with a model's classes, by the rule of this module.

    >>> match_classes(["Tabby_cat", "crane", "dodo"], ["n02123045", "n03126707", "n02012849"]).index
    {'Tabby_cat': 0}
    """
    exact = {name: index for index, name in enumerate(classes)}
    index: dict[str, int] = {}
    by_name: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, ...]] = {}
    unmatched: list[str] = []
    plain: dict[str, list[int]] | None = None
    for name in dict.fromkeys(names):
        if name in exact:
            index[name] = exact[name]
            continue
        plain = _by_plain_name(classes) if plain is None else plain
        # A WordNet id stands for its words, but not where the model has WordNet ids itself: words are shared by several.
        spelled = [plain_name(word) for word in class_words(name)] if is_wnid(name) else [plain_name(name)]
        fitting = sorted({i for word in spelled for i in plain.get(word, []) if not (is_wnid(name) and is_wnid(classes[i]))})
        if len(fitting) == 1:
            index[name], by_name[name] = fitting[0], classes[fitting[0]]
        else:
            unmatched.append(name)
            if fitting:
                ambiguous[name] = tuple(classes[i] for i in fitting)
    return ClassMatch(index, by_name, tuple(unmatched), ambiguous)


def plain_name(name: str) -> str:
    """A name without regard to case, `_`, `-` and spaces.

    >>> plain_name("Golden_Retriever"), plain_name("T-shirt ")
    ('golden retriever', 't shirt')
    """
    return " ".join(re.split(r"[\s_-]+", name.casefold())).strip()


def one_word(name: str) -> str:
    """A class's name without spaces, which separate accepted classes in a manifest.

    >>> one_word(" traffic  light")
    'traffic_light'
    """
    return "_".join(name.split())


def model_class_text(name: str) -> str:
    """A class of a model as people read it.

    >>> model_class_text("n02123045"), model_class_text("dog")
    ('n02123045 (tabby, tabby cat)', 'dog')
    """
    return f"{name} ({', '.join(class_words(name))})" if is_wnid(name) else name


def names_text(names: Sequence[str], most: int = 10) -> str:
    """The first names of a list, and how many follow.

    >>> names_text(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(name[:60] for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _by_plain_name(classes: Sequence[str]) -> dict[str, list[int]]:
    """Indices of the model's classes by their plain names, and by the words of their WordNet ids."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(classes):
        for word in {plain_name(word) for word in (class_words(name) if is_wnid(name) else (name,))}:
            found[word].append(index)
    return found
