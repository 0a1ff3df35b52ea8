from locality import ModelSpec, load_dataset
from locality.data.check import check_source
from locality.data.sources.photos import photos
from locality.imagenet_classes import imagenet_wnids


def test_photographs_are_whole_and_of_imagenet_classes() -> None:
    source = photos()
    assert check_source(source) == []
    assert len(source.manifest) == 8
    known = set(imagenet_wnids())
    assert all(wnid in known for row in source.manifest.images["wnid"] for wnid in row.split(" "))


def test_an_imagenet_model_sees_them_with_their_labels() -> None:
    spec = ModelSpec("m", classes=imagenet_wnids(), interpolation="bicubic")
    data = load_dataset("photos", spec=spec, max_box_share=None)
    by_id = {sample.id: sample for sample in data}
    assert by_id["chelsea"].accepted == (281, 282, 285)  # tabby, tiger cat, Egyptian cat
    assert by_id["coffee"].label == 967  # espresso
    assert len(by_id["grace_hopper"].boxes) == 2
    assert data.batch(range(8)).images.shape == (8, 3, 224, 224)
    # The cat fills what the model sees, and so do the motorcycles: a box that large cannot be missed.
    assert {sample.id for sample in load_dataset("photos", spec=spec)} == {
        *("astronaut", "camera", "coffee", "rocket", "grace_hopper")
    }
