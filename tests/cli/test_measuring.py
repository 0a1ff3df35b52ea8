"""Commands that measure: wrong names are reported before torch is imported; `--threads`."""

import os
import subprocess
import sys

import pytest
import torch

from locality.attribution import METHODS
from locality.boundary import SEARCHES, SearchContext
from locality.cli import main
from locality.cli.measuring import cpu_threads
from locality.cli.table_names import _names_in_source
from locality.data.sources import SOURCES

WRONG = [
    (["eval", "--model", "shapes_cn"], "shapes_cn"),
    (["eval", "--model", "shapes_cnn", "--methods", "SM,BIGG"], "`method` must be one of SM, "),
    (["eval", "--model", "shapes_cnn", "--search", "fats"], "did you mean 'fast'?"),
    (["eval", "--model", "shapes_cnn", "--data", "shaps"], "did you mean 'shapes'?"),
    (["compare", "shapes_cnn", "shapes_cnn_robst"], "did you mean 'shapes_cnn_robust'?"),
    (["robust", "--model", "shapes_cn"], "shapes_cn"),
    (["certify", "--model", "shapes_cnn", "--data", "shaps"], "did you mean 'shapes'?"),
    (["explain", __file__, "--model", "shapes_cn"], "shapes_cn"),
]


@pytest.mark.parametrize(("words", "sentence"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_names_are_reported_before_torch_is_imported(words: list[str], sentence: str) -> None:
    code = (
        "import sys\nfrom locality.cli import main\ntry: main()\nexcept SystemExit as end: assert end.code == 2, end.code\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_read_from_the_source_are_those_of_the_tables() -> None:
    assert list(_names_in_source("attribution.methods", "METHODS")) == list(METHODS)
    assert list(_names_in_source("boundary", "SEARCHES")) == list(SEARCHES)
    assert list(_names_in_source("data.sources", "SOURCES")) == list(SOURCES)


def test_names_added_to_a_table_are_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def towards_white(context: SearchContext) -> torch.Tensor:
        return torch.ones_like(context.images)

    monkeypatch.setitem(SEARCHES, "white", towards_white)
    words = ["eval", "--model", "shapes_cnn", "--search", "white", "--data", "shapes", "--limit", "1", "--methods", "SM"]
    monkeypatch.setattr(sys, "argv", ["locality", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, capsys.readouterr().err


def test_threads_are_set_inside_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with cpu_threads(2):
        assert torch.get_num_threads() == 2
        assert os.environ["OMP_NUM_THREADS"] == "2"
    assert torch.get_num_threads() == before
    assert "OMP_NUM_THREADS" not in os.environ
    with cpu_threads(None):
        assert torch.get_num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with cpu_threads(None):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("words", "threads"), [([], 1), (["--threads", "3"], 3)])
def test_a_command_measures_with_these_threads(words: list[str], threads: int) -> None:
    code = (
        "import sys\nfrom locality.cli import main\nimport locality.zoo.pixel_model as pixel_model\n"
        "import torch, locality.runner.evaluate as module\n"
        "def shown(*_, **__): print(torch.get_num_threads(), flush=True); sys.exit(0)\n"
        "module.evaluate_with = shown\nmain()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", code, "eval", "--model", "shapes_cnn", "--data", "shapes", "--limit", "1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split()[-1:] == [str(threads)], done.stderr
