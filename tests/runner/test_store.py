"""The folder of a run: complete files or none, the same bytes in any order of completion."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from suite_examples import EVERYTHING, OTHER, STEADY

from locality.data.dataset import ImageDataset
from locality.results.folder import read_results
from locality.results.schema import CORE
from locality.runner.evaluate import evaluate
from locality.runner.measurements import MEASUREMENTS
from locality.runner.plan import Plan, make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.store import Store
from locality.runner.suite import Suite
from locality.runner.suite_images import chosen_images
from locality.runner.unit import Measured, measure
from locality.zoo.load import load_model

TABLES = {**CORE, **{name: schema for one in MEASUREMENTS.values() for name, schema in one.tables.items()}}
HERE = Machine(processes=0)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(EVERYTHING)


@pytest.fixture(scope="module")
def measured(plan: Plan) -> dict[str, Measured]:
    """Every unit of the plan, measured once."""
    return {unit.key: measure(plan.task(unit, 1)) for unit in plan.units}


def filled(folder: Path, plan: Plan, measured: dict[str, Measured], seed: int) -> Store:
    """A store in which the units were finished in some order."""
    store = Store(folder)
    with store.opened():
        store.write_plan(plan)
        units = list(plan.units)
        random.Random(seed).shuffle(units)
        for unit in units:
            store.save(plan.task(unit, 1), measured[unit.key])
        store.write_tables()
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def test_tables_do_not_depend_on_the_order_of_completion(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        filled(tmp_path / name, plan, measured, seed)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert set(contents(tmp_path / "a")) == {
        *(f"{name}.parquet" for name in TABLES if name != "faults"),
        "results.json",
    }


def test_what_was_measured_is_what_is_read(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    filled(tmp_path, plan, measured, 0)
    results = read_results(tmp_path)
    data = plan_data(plan)
    expected = [
        evaluate(load_model(source), data, search="fast", batch_size=2, progress=False).rows.assign(model=name)
        for name, source in (("steady", STEADY), ("other", OTHER))
    ]
    found = results.rows.astype({"model": str, "image_id": str, "method": str})
    pd.testing.assert_frame_equal(found, pd.concat(expected, ignore_index=True), check_dtype=False, rtol=1e-6)
    assert results.rows["correct"].dtype == "boolean"
    for name, columns in TABLES.items():
        assert tuple(results[name].columns) == tuple(columns)
    assert results.models["model"].tolist() == ["steady", "other"]
    assert results.models["counterpart"].tolist() == [None, "steady"]
    assert len(results["robust"]) == 2 * 3
    assert set(results["similarity"]["pair"]) == {"SM-BSM", "IG-BIG", "IG-BIG integral"}
    assert len(results["similarity"]) == 2 * 3 * 3
    noises = results["faithfulness"].groupby("method")["noise"].nunique()
    assert noises.to_dict() == {"SM": 2, "IG": 4, "BIG": 4}  # a saliency map has no path of its own
    randomised = results["layer_randomisation"]
    steps = randomised.drop_duplicates("step")
    assert steps["layers"].tolist() == [0, 1, 2]
    assert steps["layer"].tolist() == ["", "net.3", "net.0"]
    assert set(randomised["model"]) == {"steady"}
    assert (randomised.loc[randomised["step"] == 0, "spearman"] == 1).all()
    assert (results["searches"]["gradients"] > 1).all()
    assert results.provenance["units"] == {"planned": len(plan.units), "finished": len(plan.units), "with faults": 0}
    assert results.provenance["versions"]["locality"] == "0.1.0"
    assert results.provenance["suite"]["robust"][0]["epsilon"] == 8 / 255


def plan_data(plan: Plan) -> ImageDataset:
    return chosen_images(plan.suite.data, "shapes", plan.models[0].spec, None)


def test_the_gallery(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    filled(tmp_path, plan, measured, 0)
    gallery = read_results(tmp_path).gallery
    data = plan_data(plan)
    samples = {data[place].id: data[place] for place in range(len(data))}
    assert len(gallery) == 2
    for entry in gallery:
        sample = samples[entry.image_id]
        assert entry.image.shape == (64, 64, 3)
        assert (entry.image == (sample.image * 255).round().byte().permute(1, 2, 0).numpy()).all()
        box = sample.boxes[0]
        assert entry.boxes == ((box.x0, box.y0, box.x1, box.y1),)
        assert entry.label == data.classes[sample.label]
        assert set(entry.maps) == {(model, name) for model in ("steady", "other") for name in ("SM", "IG", "BIG")}
        assert all(abs(plane).max() == 1 for plane in entry.maps.values())
        assert set(entry.predictions) == {"steady", "other"}


def test_tables_alone_are_enough(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    filled(tmp_path, plan, measured, 0)
    from_units, from_tables = read_results(tmp_path), read_results(tmp_path / "tables")
    assert list(from_units) == list(from_tables)
    for name in from_units:
        pd.testing.assert_frame_equal(from_units[name], from_tables[name])
    assert from_units.provenance == from_tables.provenance
    assert from_units.name == from_tables.name == "everything"
    assert [entry.image_id for entry in from_units.gallery] == [entry.image_id for entry in from_tables.gallery]


def test_part_of_the_results(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    store = Store(tmp_path)
    with store.opened():
        store.write_plan(plan)
        store.save(plan.task(plan.units[1], 1), measured[plan.units[1].key])
    results = read_results(tmp_path)
    assert len(results.rows) == 1 * 3
    assert results.rows["found"].dtype.kind == "b"
    assert len(results.models) == 2
    assert results.provenance["units"] == {"planned": len(plan.units), "finished": 1, "with faults": 0}


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no results: pass the folder that `locality bench"):
        read_results(tmp_path)
    (tmp_path / "plan.json").write_text('{"format": 99}')
    (tmp_path / "units").mkdir()
    with pytest.raises(ValueError, match="another version of locality"):
        read_results(tmp_path)


def test_finished_means_complete(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    unit = plan.units[0]
    store = Store(tmp_path)
    with store.opened():
        assert store.state(unit.key) == "missing"
        store.save(plan.task(unit, 1), measured[unit.key])
        assert store.state(unit.key) == "finished"
        table = store.files.table_path(unit.key, "rows")
        whole = table.read_bytes()
        table.write_bytes(whole[:-1])  # a disk that lied
        assert store.state(unit.key) == "missing"
        table.unlink()
        assert store.state(unit.key) == "missing"
        for damaged in (bytes(len(whole)), whole[:-20] + bytes(20)):
            table.write_bytes(damaged)  # as long as it should be
            assert store.state(unit.key) == "missing"
        table.write_bytes(whole)
        assert store.state(unit.key) == "finished"
        (store.files.units / f"{unit.key}.json").write_text('{"tables": ')
        assert store.state(unit.key) == "missing"
        store.save(plan.task(unit, 1), replace(measured[unit.key], faults=(("a", "bad"),)))
        assert store.state(unit.key) == "with faults"


def test_a_damaged_unit_is_measured_again(tmp_path: Path) -> None:
    suite = Suite("short", EVERYTHING.models[:1], EVERYTHING.data, ("SM",), block=2)
    run_suite(suite, tmp_path, HERE)
    before = contents(tmp_path)
    shard = sorted((tmp_path / "units").glob("*.rows.parquet"))[0]
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.warns(UserWarning, match="damaged"):
        assert read_results(tmp_path).provenance["units"] == {"planned": 2, "finished": 1, "with faults": 0}
    assert run_suite(suite, tmp_path, HERE).kept == 1
    assert contents(tmp_path) == before


def test_damaged_files_are_named_with_what_to_do(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    store = filled(tmp_path, plan, measured, 0)
    for text, reason in (("", "Expecting value"), ("[]", "not a table"), ("{}", "without suite, device")):
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(ValueError, match=rf"plan.json` is damaged \({reason}.*\): run the suite again"):
            read_results(tmp_path)
    (tmp_path / "tables/results.json").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"results.json` is damaged \(.*\): run the suite again"):
        read_results(tmp_path / "tables")
    store.write_plan(plan)
    store.write_tables()
    (tmp_path / "tables/robust.parquet").unlink()
    with pytest.raises(ValueError, match=r"robust.parquet` is damaged \(.*\): delete it and run the suite again"):
        read_results(tmp_path / "tables")
    store.write_tables()
    flipped(tmp_path / "tables/rows.parquet", 200)  # inside a page, which pyarrow may read as another number
    with pytest.raises(ValueError, match=r"rows.parquet` is damaged \(.*\): delete it and run the suite again"):
        read_results(tmp_path / "tables")
    about = tmp_path / "tables/results.json"
    about.write_text(about.read_text().replace('"planned": ', '"planned": 1'))
    with pytest.raises(ValueError, match=r"results.json` is damaged \(its content is not what was written\)"):
        read_results(tmp_path / "tables")


def flipped(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_in_a_unit_means_missing(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    store = filled(tmp_path, plan, measured, 0)
    key = plan.units[0].key
    for path in (store.files.table_path(key, "rows"), store.files.record_path(key)):
        flipped(path, 200)
        assert store.state(key) == "missing"
        with pytest.warns(UserWarning, match="1 unit is damaged and left out: run the suite again"):
            assert read_results(tmp_path).provenance["units"]["finished"] == len(plan.units) - 1
        flipped(path, 200)
        assert store.state(key) == "finished"


def test_units_of_versions_without_hashes_are_read(tmp_path: Path, plan: Plan, measured: dict[str, Measured]) -> None:
    store = filled(tmp_path, plan, measured, 0)
    for path in [*store.files.units.glob("*.json"), tmp_path / "plan.json", tmp_path / "tables/results.json"]:
        content = json.loads(path.read_text())
        content.pop("sha256", None)
        del content["content_sha256"]
        path.write_text(json.dumps(content))
    assert len(read_results(tmp_path).rows) == len(read_results(tmp_path / "tables").rows) == 2 * 3 * 3


def test_one_run_at_a_time_and_leftovers_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    with store.opened():
        (store.files.units / ".a.json-x.part").write_text("half")
        with pytest.raises(ValueError, match="is being written by another run"), Store(tmp_path / "out").opened():
            pass
    with store.opened():
        assert not list(store.files.units.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="must be a folder for results"), Store(tmp_path / "file").opened():
        pass


def test_a_run_resumes_where_another_stopped(tmp_path: Path) -> None:
    data = replace(EVERYTHING.data, limit=5)
    suite = Suite("short", EVERYTHING.models, data, ("SM",), block=2)
    reported: list[tuple[int, int | None]] = []
    whole = run_suite(suite, tmp_path / "whole", HERE, lambda done, total: reported.append((done, total)))
    assert (whole.units, whole.kept, len(whole.faults)) == (6, 0, 0)
    assert reported == [(done, 10) for done in (0, 2, 4, 5, 7, 9, 10)]

    def stop(done: int, total: int | None) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_suite(suite, tmp_path / "cut", HERE, stop)
    calls: list[str] = []
    again = run_suite(suite, tmp_path / "cut", HERE, lambda done, total: calls.append(f"{done} of {total}"))
    assert again.kept == 2
    assert calls == ["0 of 6", "1 of 6", "3 of 6", "5 of 6", "6 of 6"]
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut/units").iterdir()}
    assert run_suite(suite, tmp_path / "cut", HERE).kept == 6
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "cut/units").iterdir()}
    changed = run_suite(replace(suite, rho=0.01), tmp_path / "cut", HERE)
    assert changed.kept == 0
    assert not read_results(tmp_path / "cut").rows["recall"].equals(read_results(tmp_path / "whole").rows["recall"])
    back = run_suite(suite, tmp_path / "cut", HERE)
    assert back.kept == 6
    assert contents(tmp_path / "whole") == contents(tmp_path / "cut")


def test_tables_are_merged_again_only_if_units_or_tables_changed(
    tmp_path: Path, plan: Plan, measured: dict[str, Measured]
) -> None:
    store = filled(tmp_path, plan, measured, 1)
    path = tmp_path / "tables/rows.parquet"
    before, written = contents(tmp_path), path.stat().st_mtime_ns
    faults, _ = store.write_tables()
    assert path.stat().st_mtime_ns == written
    assert faults.empty
    path.write_bytes(path.read_bytes()[:-1] + b"X")  # a damaged table
    store.write_tables()
    assert contents(tmp_path) == before
    (tmp_path / "tables/rows.parquet").unlink()  # a missing one
    store.write_tables()
    assert contents(tmp_path) == before
    store.files.record_path(plan.units[0].key).unlink()  # a unit less
    store.write_tables()
    assert contents(tmp_path)["rows.parquet"] != before["rows.parquet"]


def test_tables_of_an_earlier_suite_in_the_folder_are_removed(tmp_path: Path) -> None:
    suite = Suite("short", EVERYTHING.models[:1], EVERYTHING.data, ("SM",), block=2)
    gallery = {"gallery": EVERYTHING.requested("gallery")}
    run_suite(replace(suite, measurements=gallery), tmp_path, HERE)
    assert "gallery" in read_results(tmp_path / "tables")
    run_suite(suite, tmp_path, HERE)
    assert "gallery" not in read_results(tmp_path / "tables")
    assert "gallery" not in read_results(tmp_path)


def test_plans_are_readable(tmp_path: Path, plan: Plan) -> None:
    store = Store(tmp_path)
    with store.opened():
        store.write_plan(plan)
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert written["units"][0][:2] == ["steady", "locality 0–1"]
    assert written["data"]["steady"]["name"] == "shapes"
