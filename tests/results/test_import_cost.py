"""Reading results does not wait for torch."""

import subprocess
import sys


def test_results_import_neither_torch_nor_scipy_nor_matplotlib() -> None:
    code = (
        "import locality.results.folder, locality.results.gallery, locality.results.parquet, locality.results.results, sys; "
        "print(sorted({'torch', 'scipy', 'matplotlib', 'captum', 'locality.runner'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
