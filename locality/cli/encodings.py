"""Any encoding of the terminal: signs that it cannot show are written in ASCII."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from typing import TextIO

IN_ASCII = {
    "ℓ": "l",
    "∞": "inf",
    "−": "-",
    "–": "-",
    "—": "-",
    "×": "x",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "±": "+-",
    "√": "sqrt",
    "‖": "||",
    "Σ": "sum",
    "→": "->",
    "·": "*",
    "ε": "eps",
    "σ": "sigma",
    "β": "beta",
    "θ": "theta",
    "τ": "tau",
    "α": "alpha",
    "ρ": "rho",
}


def show_in_any_encoding() -> None:
    """Let standard output and standard error write signs that they cannot encode in ASCII, instead of failing."""
    codecs.register_error("in_ascii", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and not can_show_all(stream):
            stream.reconfigure(errors="in_ascii")


def can_show_all(stream: TextIO) -> bool:
    """Whether every character can be written to the stream."""
    try:
        return codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")
    except LookupError:
        return False


def in_ascii(text: str) -> str:
    """The text in ASCII: signs in words, letters without accents, anything else as a question mark.

    >>> in_ascii("ℓ∞ 4/255 ± 0.1, é, 猫")
    'linf 4/255 +- 0.1, e, ?'
    """
    return "".join(IN_ASCII.get(character) or _plain(character) for character in text)


def _plain(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end
