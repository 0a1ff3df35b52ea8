"""Attacks that are tests: each case of a parametrised list runs and is counted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree  # our own report

ROOT = Path(__file__).resolve().parents[2]


def counted(path: str, test: str, root: Path = ROOT) -> dict[str, Any]:
    """Run every case of one parametrised test of a file, in a process of its own, and count the cases that hold."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"{path}::{test}"]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True)
        if not report.exists():
            raise SystemExit(f"{path}::{test} did not run:\n{done.stdout}{done.stderr}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    names = {case.attrib["name"].removeprefix(f"{test}[").removesuffix("]"): len(case) == 0 for case in cases}
    failed = [name for name, held in names.items() if not held]
    return {"cases": len(names), "held": len(names) - len(failed), "failed": failed, "names": list(names)}
