"""Errors carry what they say as fields, survive pickling, and suggest the nearest name."""

import pickle

import pytest

from locality.errors import ArgumentError, DataError, Fault, did_you_mean, unknown_choice


def test_an_argument_error_keeps_its_fields_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ArgumentError("eps", "above 0", -1, "say 4/255")))
    assert (error.argument, error.expected, error.got, error.hint) == ("eps", "above 0", -1, "say 4/255")
    assert str(error) == "`eps` must be above 0, got -1: say 4/255"
    assert str(error.renamed("loss.epsilon")) == "`loss.epsilon` must be above 0, got -1: say 4/255"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("BGI", "did you mean 'BIG'?"), ("big", "did you mean 'BIG'?"), ("zebra", ""), ("", "")],
)
def test_did_you_mean(name: str, expected: str) -> None:
    assert did_you_mean(name, ["SM", "IG", "BIG"]) == expected


def test_an_unknown_choice_without_a_near_name_has_no_hint() -> None:
    assert str(unknown_choice("norm", "l7x", ["linf"])) == "`norm` must be one of linf, got 'l7x'"


def test_a_data_error_counts_its_faults() -> None:
    faults = (Fault("a.csv", 2, "a", "bad box", "no area"), Fault("a.csv", None, "", "bad box", "no box"))
    error = pickle.loads(pickle.dumps(DataError.of(faults)))
    assert error.faults == faults
    assert str(error) == "a.csv, row 2: no area (and 1 more; `locality data check` lists them all)"
