"""Settings by name: read from tables, checked, written back."""

from dataclasses import dataclass, field

import pytest

from locality.errors import Problem
from locality.training.schedules import SCHEDULES, Constant, Linear, Schedule, WarmUp
from locality.training.settings import chosen_from, name_in, problems_in, read_settings, table_of


@dataclass(frozen=True)
class Inner:
    size: float
    schedule: Schedule = field(default=Constant(), metadata=chosen_from(SCHEDULES))

    def problems(self) -> list[Problem]:
        return [] if self.size > 0 else [Problem("size", f"must be above 0, got {self.size}")]


KINDS: dict[str, type] = {"inner": Inner}


@dataclass(frozen=True)
class Outer:
    name: str
    part: Inner = field(default=Inner(1.0), metadata=chosen_from(KINDS))
    parts: dict[str, Inner] = field(default_factory=dict)
    limits: tuple[float, ...] = (1.0,)
    limit: int | None = None


def test_named_settings_are_read_and_written() -> None:
    problems: list[Problem] = []
    table = {
        "name": "a",
        "part": {"name": "inner", "size": "1/4", "schedule": {"name": "linear", "until": 0.5}},
        "limits": [1, 2],
    }
    outer = read_settings(Outer, table, "", problems)
    assert problems == []
    assert outer == Outer("a", Inner(0.25, Linear(until=0.5)), limits=(1.0, 2.0))
    written = table_of(outer)
    assert written == {
        "name": "a",
        "part": {"name": "inner", "size": 0.25, "schedule": {"name": "linear", "begin": 0.0, "end": 1.0, "until": 0.5}},
        "parts": {},
        "limits": [1.0, 2.0],
    }
    assert read_settings(Outer, written, "", problems) == outer


@pytest.mark.parametrize(
    ("part", "where", "text"),
    [
        (3, "part", 'must be a table such as { name = "inner" }, got 3'),
        ({}, "part", "must have the key 'name'"),
        ({"name": "iner", "size": 1}, "part.name", "must be one of inner, got 'iner': did you mean 'inner'?"),
        ({"name": ["inner"]}, "part.name", "must be one of inner, got ['inner']"),
        ({"name": "inner"}, "part", "must have the key 'size'"),
        ({"name": "inner", "size": "x"}, "part.size", "must be a number, got 'x'"),
        ({"name": "inner", "size": 1, "syze": 2}, "part", "has an unknown key 'syze': did you mean 'size'?"),
        ({"name": "inner", "size": 1, "schedule": {"name": "x"}}, "part.schedule.name", "must be one of constant,"),
    ],
)
def test_mistakes_say_where_they_are(part: object, where: str, text: str) -> None:
    problems: list[Problem] = []
    assert read_settings(Outer, {"name": "a", "part": part}, "", problems).part.size == 1.0  # what can be read is read
    assert [problem.where for problem in problems] == [where]
    assert problems[0].text.startswith(text)


def test_all_mistakes_are_listed_at_once() -> None:
    problems: list[Problem] = []
    assert read_settings(Outer, {"part": {"name": "x"}, "limit": "many"}, "top", problems) is None
    assert [problem.where for problem in problems] == ["top.limit", "top", "top.part.name"]


def test_problems_of_values_are_found_wherever_they_are() -> None:
    outer = Outer("a", Inner(-1.0, WarmUp(2.0)), {"left": Inner(1.0), "right": Inner(0.0, Linear(until=-1.0))})
    assert [problem.where for problem in problems_in(outer, "top")] == [
        "top.part.size",
        "top.part.schedule.share",
        "top.parts.right.size",
        "top.parts.right.schedule.until",
    ]


def test_settings_of_no_table_have_no_name() -> None:
    assert name_in(SCHEDULES, Linear()) == "linear"
    with pytest.raises(ValueError, match="must be one of constant, linear, warm_up, multistep, got 'Inner': add a line"):
        name_in(SCHEDULES, Inner(1.0))
