"""Sphinx's configuration: `make docs` builds the site into docs/_build/html, without network, and warnings are errors."""

import re
from importlib.metadata import version as package_version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

project = "locality"
author = "the authors of locality"
release = version = package_version("locality")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "locality"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "literal"  # docstrings write code in single backticks, as Markdown does
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
suppress_warnings = ["myst.header"]  # generated tables bring their own heading

# What reStructuredText would take for markup in a docstring that is written as plain text.
MARKUP = re.compile(r"\|(?=\S)|\*(?=\S)|(?<=\w)_(?=\W|$)")


def plain_text(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape such markup outside code, and set lists off by empty lines, which Markdown does not need."""
    lines[:] = _with_lists_apart(lines)
    for index, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")  # every other part is code
            lines[index] = "`".join(part if place % 2 else MARKUP.sub(r"\\\g<0>", part) for place, part in enumerate(parts))


def _with_lists_apart(lines: list[str]) -> list[str]:
    apart: list[str] = []
    in_list = False
    for line in lines:
        starts = line.startswith("- ")
        if (starts and not in_list and apart and apart[-1]) or (in_list and line and not starts and line[0] != " "):
            apart.append("")
        in_list = starts or (in_list and line[:1] == " ")
        apart.append(line)
    return apart


def inside_the_site(app: object, document: str, source: list[str]) -> None:
    """Rewrite links that lead out of docs/: the site has its own copy of CONTRIBUTING.md; folders are named, not linked."""

    def rewritten(link: re.Match[str]) -> str:
        text, path = link["text"], link["path"].rstrip("/")
        if path == "CONTRIBUTING.md":
            return f"[{text}](contributing.md)"
        if (ROOT / path).is_dir() or path.endswith(".md"):
            return text if path in text else f"{text} (`{path}`)"
        return link[0]

    source[0] = re.sub(r"\[(?P<text>[^\]]+)\]\(\.\./(?P<path>[^)#]+)(#[^)]*)?\)", rewritten, source[0])


def setup(app) -> None:  # type: ignore[no-untyped-def]
    """Register the hooks above."""
    app.connect("autodoc-process-docstring", plain_text)
    app.connect("source-read", inside_the_site)
