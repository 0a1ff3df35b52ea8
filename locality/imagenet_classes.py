"""The classes of ImageNet, in the order that data sets and models share."""

from __future__ import annotations

import functools


@functools.cache
def imagenet_wnids() -> tuple[str, ...]:
    """The 1,000 WordNet ids of ILSVRC 2012 in the order of every published model's logits.

    >>> imagenet_wnids()[0]  # the tench
    'n01440764'
    """
    from timm.data.imagenet_info import ImageNetInfo

    return tuple(ImageNetInfo("imagenet-1k").label_names())


def is_wnid(name: str) -> bool:
    """Whether a name is written as a WordNet id.

    >>> is_wnid("n02123045"), is_wnid("tabby")
    (True, False)
    """
    return len(name) == 9 and name.startswith("n") and name[1:].isdecimal()


def class_word(name: str) -> str:
    """The everyday name of a class: the first word of a WordNet id; other names are returned unchanged.

    >>> class_word("n01443537"), class_word("circle"), class_word("n99999999")
    ('goldfish', 'circle', 'n99999999')
    """
    return class_words(name)[0]


def class_words(name: str) -> tuple[str, ...]:
    """Every word of a WordNet id; of another name, the name itself.

    >>> class_words("n02123045")
    ('tabby', 'tabby cat')
    """
    return tuple(word.strip() for word in _words().get(name, name).split(",")) if is_wnid(name) else (name,)


@functools.cache
def _words() -> dict[str, str]:
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo("imagenet-22k")
    return {name: info.label_name_to_description(name) for name in info.label_names()}
