"""`locality train` as a person types it; that it writes weights and a card is in tests/training/test_finish.py."""

from pathlib import Path

from typer.testing import CliRunner

from locality.cli import app


def test_mistakes_are_one_sentence_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runs = ["--out", str(tmp_path / "runs")]
    for words, sentence in [
        (["nothing", *runs], "`recipe` must be a TOML file or one of shapes_cnn"),
        (["shapes_cnn", "--out", str(tmp_path / "file")], "`--out` must be a folder"),
        (
            ["shapes_cnn", *runs, "--device", "cuda:1"],
            "`device` must be cpu, or left out for what torch finds, got 'cuda:1'",
        ),
    ]:
        result = CliRunner().invoke(app, ["train", *words])
        assert isinstance(result.exception, ValueError), result.output
        assert sentence in str(result.exception)
        assert "\n" not in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
