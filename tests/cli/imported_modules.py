"""The packages that a command imports, seen from a process of its own."""

from __future__ import annotations

import subprocess
import sys

RUN = """
import sys
sys.argv = ["locality", *sys.argv[1:]]
from locality.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("\\n" + " ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def imported_modules(*words: object) -> set[str]:
    """Run `locality WORDS` and return the top-level packages it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())
