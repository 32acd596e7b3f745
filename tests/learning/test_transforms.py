"""Augmentation by torchvision's transforms: the samples of nodes and the random numbers."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import ddlsim
from ddlsim.data import Arrays
from ddlsim.foundation.errors import DataDamaged, ScenarioError
from ddlsim.learning.augmenting import TransformAugmenter, Transforms, augment_together

MEAN, STD = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
X = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
Y = np.arange(20) % 2


@pytest.fixture
def pictures():
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def augmented(text, pictures, seed=0):
    augment = TransformAugmenter(Transforms(text, pictures.shape[1:]), MEAN, STD, seed)
    scale = STD[:, None, None], MEAN[:, None, None]
    return augment((pictures - scale[1]) / scale[0]) * scale[0] + scale[1]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ({"name": "RandomRotation", "degrees": 40}, v2.RandomRotation(40)),
        (
            [{"name": "RandomCrop", "size": 8, "padding": 2}, "RandomHorizontalFlip"],
            [v2.RandomCrop(8, 2), v2.RandomHorizontalFlip()],
        ),
        (
            {"name": "RandomApply", "transforms": [{"name": "ColorJitter", "hue": 0.3}]},
            v2.RandomApply([v2.ColorJitter(hue=0.3)]),
        ),
    ],
)
def test_torchvision_transform_is_applied_to_each_picture(pictures, text, made):
    seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(0)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = pictures
        for each in made if isinstance(made, list) else [made]:
            expected = torch.stack([each(picture) for picture in expected])
    torch.testing.assert_close(augmented(text, pictures), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(augmented(text, pictures, seed=1), expected)


def test_nodes_draw_the_same_numbers_in_a_wave_as_alone(pictures):
    transforms = Transforms({"name": "RandomRotation", "degrees": 40}, (3, 8, 8))
    both = torch.stack([pictures, pictures.flip(0)])[None]
    together = augment_together([TransformAugmenter(transforms, MEAN, STD, seed) for seed in (3, 4)], both)
    for node, seed in enumerate((3, 4)):
        assert torch.equal(together[0, node], TransformAugmenter(transforms, MEAN, STD, seed)(both[0, node]))


def test_deterministic_transform_takes_the_whole_batch(pictures):
    shapes = []

    class Turn:
        def __call__(self, pictures):
            shapes.append(pictures.shape)
            return pictures.rot90(1, (-2, -1))

    arrays = Arrays(train=(X, Y), test=(X, Y), augment=Turn())
    torch.testing.assert_close(augmented(arrays.augmentation, pictures), pictures.rot90(1, (2, 3)))
    assert shapes[-1] == pictures.shape


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            {"name": "RandomCrop", "size": 4},
            r"RandomCrop must return float32 \[3, 8, 8\], .* got torch.float32 \[3, 4, 4\]",
        ),
        (
            {"name": "Normalize", "mean": [0.5], "std": [0.5]},
            "Normalize is not supported as an augmentation.*mean and std of the data",
        ),
        ({"name": "JPEG", "quality": 50}, "JPEG cannot take a float tensor"),
    ],
)
def test_unsuitable_transforms_are_refused_before_the_run(text, error):
    with pytest.raises(ScenarioError, match=error):
        Transforms(text, (3, 8, 8))


def test_transform_with_a_separate_generator_is_refused():
    random = np.random.default_rng(0)
    arrays = Arrays(train=(X, Y), test=(X, Y), augment=lambda picture: picture + random.random())
    with pytest.raises(ScenarioError, match="draws from a separate generator"):
        Transforms(arrays.augmentation, (3, 8, 8))


def run(place, seed=0, **keys):
    scenario = {
        "rounds": 2,
        "nodes": {"clusters": [2]},
        "algorithm": "dpsgd",
        "topology": {"name": "complete"},
        "model": {"name": "mlp", "hidden": [4]},
        "partition": {"name": "random"},
        "training": {"learning_rate": 0.1, "local_steps": 2, "batch_size": 4},
    }
    torch.manual_seed(seed)
    before = torch.get_rng_state()
    ddlsim.run(scenario, out=place, **{"data": ((X, Y), (X, Y)), **keys})
    assert torch.equal(before, torch.get_rng_state())
    return (place / "metrics.jsonl").read_bytes()


def test_transforms_draw_from_the_seed_of_the_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torchvision.transforms import v2\nclass Turn(v2.RandomRotation):\n    pass\n"
    )
    named = run(tmp_path / "a", set={"training.augmentation": {"name": "RandomRotation", "degrees": 90}})
    given = Arrays(train=(X, Y), test=(X, Y), augment=v2.RandomRotation(90))
    assert run(tmp_path / "b", seed=7, data=given) == named
    in_file = {"name": f"{tmp_path}/mine.py:Turn", "degrees": 90}
    assert run(tmp_path / "c", set={"training.augmentation": in_file}) == named
    assert run(tmp_path / "d") != named
    (tmp_path / "mine.py").write_text("from torchvision.transforms.v2 import RandomAffine as Turn\n")
    with pytest.raises(ScenarioError, match=r"with other inputs: training.augmentation.name: .*mine.py:Turn"):
        run(tmp_path / "c", set={"training.augmentation": in_file})


class Items(torch.utils.data.Dataset):
    """Pictures with a transform."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return self.transform(torch.from_numpy(X[index]).permute(2, 0, 1)), int(Y[index])


@pytest.mark.parametrize(
    "transform", [v2.RandomRotation(30), v2.RandomErasing(p=0.2), lambda x: x + np.random.randint(9)]
)
def test_random_transforms_of_a_data_set_are_refused_with_the_cure(transform):
    np.random.seed(0)
    torch.manual_seed(0)
    with pytest.raises(
        DataDamaged, match=r"item \d+ of 20 of the Items differs when it is read again.*augment=transform"
    ):
        Arrays(train=Items(transform), test=(X, Y))


def test_other_transforms_of_a_data_set_are_accepted():
    assert np.array_equal(Arrays(train=Items(v2.Identity()), test=(X, Y)).load(None).train_images, X)


def test_signals_reach_the_model_unchanged():
    signals = np.random.default_rng(0).normal(size=(6, 9, 16)).astype("float32")
    labels = np.arange(6) % 2
    data = Arrays(train=(signals, labels), test=(signals, labels), layout="signals").load(None)
    assert np.array_equal(data.train_images, signals) and data.sample_shape == (9, 16)
    with pytest.raises(DataDamaged, match=r"expected signals, floating \[N, C, T\], got uint8"):
        Arrays(train=(X, Y), test=(X, Y), layout="signals")
