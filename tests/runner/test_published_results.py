"""What is committed under bench/results: no photographs that may not be passed on."""

import json
import subprocess
from pathlib import Path

import pytest
from report.made_up_results import small_results, write_results

from locality.results.folder import read_results

ROOT = Path(__file__).parents[2]
OURS = ("shapes", "photos")  # the images that come with locality


def git(*words: str) -> list[str]:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not here")
    if done.returncode == 128:
        pytest.skip("this is no git checkout")
    return done.stdout.splitlines()


def of_others(gallery: Path) -> list[str]:
    """The data sets of a gallery's suite that are not ours; a gallery that does not say where it is from is nobody's."""
    about = gallery.parent / "results.json"
    if not about.is_file():
        return ["unknown"]
    sources = json.loads(about.read_text(encoding="utf-8"))["provenance"].get("data") or {"": {"name": "unknown"}}
    return [data["name"] for data in sources.values() if data["name"].partition(":")[0] not in OURS]


def test_no_photographs_of_others_are_committed() -> None:
    galleries = [name for name in git("ls-files") if name.endswith("gallery.parquet")]
    assert {name: of_others(ROOT / name) for name in galleries if of_others(ROOT / name)} == {}


def test_results_older_than_the_column_have_a_kind() -> None:
    models = read_results(ROOT / "bench/results/zoo").models.set_index("model")
    kinds = {"shapes_cnn": "standard", "shapes_cnn_robust": "robust", "tiny_resnet_random": "random"}
    assert {name: models.loc[name, "kind"] for name in kinds} == kinds


def test_git_leaves_them_alone() -> None:
    results = "bench/results"
    paths = [f"{results}/tiny/tables/gallery.parquet", f"{results}/tiny_full/gallery.parquet", f"{results}/tiny/report.html"]
    paths += [f"{results}/imagenet/tables/gallery.parquet", f"{results}/imagenet/report.html"]
    paths += [f"{results}/demo/units/0a.gallery.parquet", f"{results}/tiny/units/0a.json"]
    assert git("check-ignore", "--no-index", *paths, f"{results}/demo/tables/gallery.parquet") == paths


@pytest.mark.parametrize(
    ("data", "found"),
    [("shapes:none", []), ("tiny-imagenet:/a", ["tiny-imagenet:/a"]), ("coco", ["coco"]), (None, ["unknown"])],
)
def test_a_gallery_is_known_by_the_data_of_its_suite(data: str | None, found: list[str], tmp_path: Path) -> None:
    tables = write_results(small_results(), tmp_path / "one") / "tables"
    about = tables / "results.json"
    description = json.loads(about.read_text(encoding="utf-8"))
    if data is not None:
        description["provenance"]["data"] = {"a model": {"name": data, "sha256": ""}}
    about.write_text(json.dumps(description), encoding="utf-8")
    assert of_others(tables / "gallery.parquet") == found
    about.unlink()
    assert of_others(tables / "gallery.parquet") == ["unknown"]
