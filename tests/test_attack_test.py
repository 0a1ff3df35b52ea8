"""bench/attack_test.py with a few attacks: none is read as other numbers, none stops the next run."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_flipped_bits_are_noticed_or_harmless() -> None:
    spec = importlib.util.spec_from_file_location("attack_test", ROOT / "bench/attack_test.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    verdicts = script.flips(60, 1)
    assert verdicts["noticed"] + verdicts["harmless"] == 60
    assert verdicts["noticed"] > 40
    assert (verdicts["kept after damage"], verdicts["tables that differ after repair"]) == (0, 0)
