"""Progress on a terminal and elsewhere, by a clock that the test moves."""

import io
import re
import sys
import time

import pytest

from locality.progress import Report, duration_text, open_no_progress, pace_text, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_units_of_a_minute_have_a_rate_and_a_time_left_on_a_terminal(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress("similarity") as report:
        report(0, 3000)
        for done in (16, 32):
            clock[0] += 64
            report(done, 3000)
        clock[0] += 60
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.getvalue())
    # 2,968 images, less the minute that went by since the last report.
    assert text.splitlines()[-1].endswith("32/3000 images 15.0 per minute, 3:16:52 left")


def test_lines_elsewhere(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress("similarity") as report:
        report(0, 3000)
        clock[0] += 64
        report(16, 3000)
        clock[0] += 1  # too soon for another line
        report(17, 3000)
    assert capsys.readouterr().err == "similarity: 16 of 3,000 images, 15.0 per minute, 3:18:56 left\n"


def test_more_than_counts(clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is to be read beside the counts, such as a loss, is asked for at each moment."""
    loss = [""]
    with progress("training", "steps", lambda: loss[0]) as report:
        for done, text in ((0, ""), (10, "loss 0.500"), (20, "loss 0.250")):
            clock[0] += 64
            loss[0] = text
            report(done, 40)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "training: 10 of 40 steps, loss 0.500, 9.4 per minute, 3:12 left",
        "training: 20 of 40 steps, loss 0.250, 9.4 per minute, 2:08 left",
    ]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("training", "steps", lambda: loss[0]) as report:
        report(0, 40)
        clock[0] += 64
        report(10, 40)
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.getvalue())
    assert text.splitlines()[-1].endswith("10/40 steps loss 0.250, 9.4 per minute, 3:12 left")


def test_the_first_line_comes_with_the_first_chunk(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress("robust") as report:
        report(0, 100)
        clock[0] += 4
        report(8, 100)
        clock[0] += 4  # the next line after ten seconds
        report(16, 100)
    assert capsys.readouterr().err == "robust: 8 of 100 images, 2.0 per second, 0:46 left\n"


def test_a_first_batch_of_minutes_shows_signs_of_life(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("locality.progress.SECONDS_BETWEEN_SIGNS", 0.001)
    with progress("eval") as report:
        for seconds, line in [
            (6.0, "eval: 0:06 so far\n"),  # a model that is being loaded: nothing was reported
            (9.0, ""),
            (17.0, "eval: 0 of 64 images, 0:17 so far\n"),
            (34.0, "eval: 0 of 64 images, 0:34 so far\n"),
        ]:
            if seconds > 9:
                report(0, 64)
            clock[0] = seconds
            assert _shown(capsys, line) == line


def _shown(capsys: pytest.CaptureFixture[str], expected: str) -> str:
    """What is printed; waits for the thread if something is expected, else a little, for what should not come."""
    text, end = "", time.perf_counter() + (10 if expected else 0.05)
    while time.perf_counter() < end and len(text) < max(1, len(expected)):
        time.sleep(0.002)
        text += capsys.readouterr().err
    return text


def test_on_a_terminal_the_first_batch_shows_its_time(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with progress("eval") as report:
        report(0, 64)
        clock[0] += 75
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.getvalue())
    assert text.splitlines()[-1].endswith("0/64 images 1:15 so far")


def test_work_of_a_second_prints_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress("eval") as report:
        for done in (0, 10, 20):
            report(done, 20)
            clock[0] += 0.5
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("last", "now", "text"),
    [
        (Report(0, 5, 10), 0, ""),
        (Report(10, 5, 10), 10, ""),  # the first report may be of what an earlier run had done
        (Report(10, 7, None), 10, "12.0 per minute"),
        (Report(10, 10, 10), 10, "30.0 per minute"),
        (Report(10, 9, 10), 100, "24.0 per minute, 0:00 left"),
    ],
)
def test_pace_is_that_since_the_first_report(last: Report, now: float, text: str) -> None:
    assert pace_text(Report(0, 5, 10), last, now) == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.6, "1 min 0 s"),
        (61, "1 min 1 s"),
        (3600, "1 h 0 min"),
        (90_000, "1 day 1 h"),
        (200_000, "2 days 7 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


def test_no_progress_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with open_no_progress("weights.pth") as report:
        report(1, None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_titles_reach_a_terminal_without_control_characters(
    is_terminal: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with progress("a\x1b]0;title\x07\x9b2J[red]b") as report:
        clock[0] += 20
        report(1, 2)
    text = stderr.getvalue()
    assert "\x1b]" not in text
    assert "\x9b" not in text
    assert "[red]b" in text  # a name, not markup
