from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from locality.data.manifest import Entry, Manifest
from locality.data.selection import box_shares, even_order
from locality.types import ModelSpec

labels_and_limit = st.lists(st.integers(0, 5), min_size=1, max_size=60).flatmap(
    lambda labels: st.tuples(st.just(labels), st.integers(1, len(labels)))
)


@given(labels_and_limit, st.integers(0, 9))
def test_every_beginning_is_as_even_as_the_supply_allows(drawn: tuple[list[int], int], seed: int) -> None:
    labels, limit = drawn
    order = even_order(np.array(labels), [f"i{n}" for n in range(len(labels))], seed)
    assert sorted(order) == list(range(len(labels)))
    supply, taken = Counter(labels), Counter(np.array(labels)[order[:limit]].tolist())
    most = max(taken.values())
    # A class that gives less than another has either run out or is only one behind.
    assert all(taken[label] >= most - 1 or taken[label] == supply[label] for label in supply)


@given(st.lists(st.integers(0, 3), min_size=5, max_size=40), st.integers(0, 9), st.randoms())
def test_the_order_does_not_depend_on_how_the_images_are_listed(labels: list[int], seed: int, random: object) -> None:
    ids = [f"i{n}" for n in range(len(labels))]
    shuffled = list(range(len(labels)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = [ids[i] for i in even_order(np.array(labels), ids, seed)]
    other_ids = [ids[i] for i in shuffled]
    other = [other_ids[i] for i in even_order(np.array(labels)[shuffled], other_ids, seed)]
    assert one == other


def test_another_seed_draws_others() -> None:
    labels, ids = np.zeros(100, dtype=np.int64), [f"i{n}" for n in range(100)]
    assert set(even_order(labels, ids, 0)[:10]) != set(even_order(labels, ids, 1)[:10])


def test_shares_are_of_what_the_model_sees() -> None:
    boxes = [[[0, 0, 40, 100]], [[50, 0, 150, 100]], [[0, 0, 50, 100], [25, 0, 75, 100]]]
    entries = [
        Entry(name, "", 0, "n0", width, 100, np.array(found, dtype=float))
        for name, width, found in zip("abc", (200, 200, 100), boxes, strict=True)
    ]
    manifest = Manifest.of(entries, source="test", licence="")
    assert box_shares(manifest, None).tolist() == [0.2, 0.5, 0.75]
    # The crop shows columns 50 to 150 of the wide images: the first box is gone, the second fills the view.
    assert box_shares(manifest, ModelSpec("m", (100, 100), 100)).tolist() == [0, 1, 0.75]
