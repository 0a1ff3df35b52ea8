"""The one handler of `main`: whatever goes wrong is one sentence and exit code 2; `--debug` shows the traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from locality.cli import main


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["locality", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, capsys.readouterr().err


ERRORS = [
    KeyError("colour"),
    RuntimeError("the size of tensor a (3) must match\nthe size of tensor b (4)"),
    TypeError("unsupported operand"),
    AssertionError(),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    ImportError("needs ray, which is not installed"),
    ValueError(""),
    OSError(28, "No space left on device", "results"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("locality.data.check.check_source", fail)
    code, text = run(monkeypatch, capsys, "data", "check", "photos")
    assert code == 2
    assert text.startswith("locality: ")
    assert text.count("\n") == 1
    assert len(text) > len("locality: \n")
    assert "Traceback" not in text


@pytest.mark.parametrize("words", [["--debug", "data", "check", "photos"], ["data", "check", "photos", "--debug"]])
def test_debug_shows_the_traceback_and_the_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise KeyError("colour")

    monkeypatch.setattr("locality.data.check.check_source", fail)
    code, text = run(monkeypatch, capsys, *words)
    assert code == 2
    assert text.startswith("Traceback")
    assert "locality: unexpected KeyError in locality/cli/data.py, line " in text.splitlines()[-1]


def test_debug_after_two_dashes_is_a_word_like_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(monkeypatch, capsys, "data", "check", "--", "--debug")
    assert code == 2
    assert "--debug" in text


def test_the_handler_of_signals_is_the_caller_s_again_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(monkeypatch, capsys, "--version")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ended_command_leaves_no_unfinished_file(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; import locality.data.check as check; from locality.cli import main\n"
        "from locality.files import write_atomically\n"
        "def wait(path): path.write_text('half'); print('writing', flush=True); time.sleep(60)\n"
        f"check.check_source = lambda *_, **__: write_atomically(Path({str(tmp_path)!r}) / 'rows.csv', wait)\n"
        "sys.argv = ['locality', 'data', 'check', 'photos']; main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "writing"
        assert len(list(tmp_path.iterdir())) == 1
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
