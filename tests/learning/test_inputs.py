"""Images stay bytes and samples stay in their file; batches are the same to the bit."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from counted_operators import CountedOperators
from local_training import local_training

from ddlsim.data import SHIFTS, Dataset
from ddlsim.data.cluster_partitions import Domains
from ddlsim.data.partitions import Random
from ddlsim.data.pixels import Uint8Images
from ddlsim.data.prepared import prepare
from ddlsim.data.shifts import Color, LabelShift, LabelSwap, NoShift, Rotate, Shift
from ddlsim.learning.backends.sample_pool import SamplePool
from ddlsim.learning.backends.stacked_models import StackedModels
from ddlsim.learning.datasets import ByteInputs, MappedInputs, NodeDatasets, batch_of, gathered
from ddlsim.learning.learner import Learner
from ddlsim.learning.training_inputs import Batches
from ddlsim.models import MODELS

CPU = torch.device("cpu")
EVERY_SHIFT = {
    "none": NoShift(),
    "quarter turns": Rotate(degrees=(0, 90)),
    "10 degrees": Rotate(degrees=(10, 350)),
    "10 degrees, black corners": Rotate(degrees=(10, 350), order="before_normalizing"),
    "color": Color(),
    "label_shift": LabelShift(),
    "label_swap": LabelSwap(pairs=((), ((0, 1),))),
}


def dataset(domains=False, wrap=lambda images: images):
    rng = np.random.default_rng(5)
    images = wrap(rng.integers(0, 256, (40, 6, 6, 3), dtype=np.uint8))
    labels = rng.integers(0, 4, 40)
    mean, std = np.float32([0.5071, 0.4867, 0.4408]), np.float32([0.2675, 0.2565, 0.2761])
    by_split = {split: np.arange(len(own)) % 2 for split, own in (("train", labels), ("test", labels[:10]))}
    if domains:
        mean, std = np.stack([mean, mean * 0]), np.stack([std, std * 2])
    return Dataset(
        "tiny", images, labels, images[:10], labels[:10], 4, mean, std, "here", domains=by_split if domains else None
    )


def prepared(shift, data, partition=None):
    return prepare(
        data,
        partition or Random(),
        shift,
        SimpleNamespace(source="none", fraction=0.1, seed=None),
        SimpleNamespace(clusters=(2, 2), placement="contiguous"),
        3,
    )


def in_floats(shift, data, monkeypatch, partition=None):
    """Return the same data as floats instead of bytes."""
    with monkeypatch.context() as patched:
        for cls in (Shift, *(SHIFTS[name] for name in SHIFTS)):
            patched.setattr(cls, "apply_to_bytes", lambda *_: None)
        return prepared(shift, data, partition)


def mapped_to(path):
    def wrap(images):
        np.save(path, images)
        return np.load(path, mmap_mode="r")

    return wrap


@pytest.mark.parametrize("domains", [None, "mixed", "apart"])
@pytest.mark.parametrize("shift", EVERY_SHIFT.values(), ids=EVERY_SHIFT)
def test_bytes_give_the_same_bits_as_floats(shift, domains, monkeypatch):
    if domains == "mixed" and getattr(shift, "order", "") == "before_normalizing":
        return  # refused: there is no one black
    data, partition = dataset(domains is not None), Domains() if domains == "apart" else None
    kept, expected = prepared(shift, data, partition), in_floats(shift, data, monkeypatch, partition)
    inputs = NodeDatasets(kept, CPU)
    for node, (images, labels) in enumerate(expected.node_train):
        assert isinstance(images, np.ndarray) and isinstance(kept.node_train[node][0], Uint8Images)
        assert np.asarray(kept.node_train[node][0]).tobytes() == images.tobytes()
        found, of = inputs.train[node]
        rows = torch.tensor([3, 0, 3])
        assert found[rows].numpy().tobytes() == images[[3, 0, 3]].tobytes()
        assert found[2:5].numpy().tobytes() == images[2:5].tobytes() and found[2:5].dtype == found.dtype
        assert of.tolist() == labels.tolist() and found.shape == images.shape
    for cluster, (images, _) in enumerate(expected.cluster_test):
        assert inputs.evaluation("test", cluster)[0][:].numpy().tobytes() == images.tobytes()


@pytest.mark.parametrize("shift", EVERY_SHIFT.values(), ids=EVERY_SHIFT)
def test_samples_in_a_file_give_the_same_bits(shift, tmp_path, monkeypatch):
    expected = in_floats(shift, dataset(), monkeypatch)
    inputs = NodeDatasets(prepared(shift, dataset(wrap=mapped_to(tmp_path / "x.npy"))), CPU)
    for node, (images, labels) in enumerate(expected.node_train):
        found, of = inputs.train[node]
        assert isinstance(found, MappedInputs) and found.shape == images.shape and found.dtype == torch.float32
        assert found[torch.tensor([1, 0])].numpy().tobytes() == images[[1, 0]].tobytes()
        assert of.tolist() == labels.tolist()


@pytest.mark.parametrize("shift", EVERY_SHIFT.values(), ids=EVERY_SHIFT)
def test_nodes_and_clusters_hold_the_bytes_of_the_data_set_once(shift):
    """One byte per value, without copies for nodes, clusters or rotated images."""
    data = dataset()
    inputs = NodeDatasets(prepared(shift, data), CPU)
    held = [images for images, _ in inputs.train], [inputs.evaluation("test", cluster)[0] for cluster in (0, 1)]
    for stored, split in zip(held, ("train", "test"), strict=True):
        assert {images.stored.data_ptr() for images in stored} == {data.samples(split)[0].ctypes.data}
        assert stored[0].stored.nbytes == data.samples(split)[0].nbytes


def test_images_of_read_only_arrays_are_shared_without_a_warning(recwarn):
    def read_only(images):
        images.flags.writeable = False
        return images

    NodeDatasets(prepared(NoShift(), dataset(wrap=read_only)), CPU)
    assert not recwarn.list


def test_nodes_of_a_cluster_share_a_decoder():
    data = prepared(Rotate(degrees=(0, 10)), dataset())
    kinds = [id(images.decodings) for images, _ in data.node_train]
    assert kinds[0] == kinds[1] != kinds[2] == kinds[3]
    assert len({id(images.decoder) for images, _ in NodeDatasets(data, CPU).train}) == 2


def test_tokens_in_a_file_keep_their_type(tmp_path):
    tokens = mapped_to(tmp_path / "tokens.npy")(np.arange(200, dtype=np.int64).reshape(40, 5))
    zero = np.zeros(1, np.float32)
    data = Dataset("text", tokens, np.arange(40) % 4, tokens[:8], np.arange(8) % 4, 4, zero, zero + 1, "here")
    kept = prepared(NoShift(), data)
    found, _ = NodeDatasets(kept, CPU).train[0]
    assert found.dtype == torch.int64 and found[:1][0].tolist() == tokens[kept.node_train[0][0].indices[0]].tolist()


def test_training_gathers_the_samples_of_its_batches():
    images, labels = NodeDatasets(prepared(NoShift(), dataset()), CPU).train[0]
    batches = Batches.of([np.array([7, 2]), np.array([2, 9])])
    found, of, rows = gathered(images, labels, batches)
    assert len(found) == 3 and [own.tolist() for own in rows] == [[1, 0], [0, 2]]
    assert torch.equal(found[rows[1]], images[torch.tensor([2, 9])]) and of[rows[0]].tolist() == labels[[7, 2]].tolist()


def test_pool_of_rotated_nodes_decodes_each_nodes_images():
    samples = NodeDatasets(prepared(Rotate(degrees=(0, 10)), dataset()), CPU).train
    before = [images[:] for images, _ in samples]
    pool = SamplePool(samples)
    assert len(set(pool.pool_of)) == 1 and all(isinstance(images, ByteInputs) for images, _ in samples)
    (rows,) = pool.rows([([0, 3], np.array([[1, 4], [0, 2]]))])
    images, _ = pool.gather(0, rows)
    assert torch.equal(images[0], before[0][[1, 4]]) and torch.equal(images[1], before[3][[0, 2]])
    assert torch.equal(samples[3][0][:], before[3])


def test_nodes_with_mapped_samples_have_separate_pools(tmp_path):
    pool = SamplePool(NodeDatasets(prepared(NoShift(), dataset(wrap=mapped_to(tmp_path / "x.npy"))), CPU).train)
    assert pool.pool_of == [0, 1, 2, 3]


def test_mapped_samples_are_sent_to_a_device_without_reading_from_it(tmp_path):
    """A copy from the device `meta` to the host is an error; a copy from a GPU would wait for all steps so far."""
    data = prepared(NoShift(), dataset(wrap=mapped_to(tmp_path / "x.npy")))
    images, labels = NodeDatasets(data, torch.device("meta")).train[0]
    for seen, own in (
        batch_of(images, labels, np.array([1, 4])),
        (pool := SamplePool([(images, labels)])).gather(0, pool.rows([([0], np.array([[1, 4]]))])[0][0]),
    ):
        assert seen.device.type == own.device.type == "meta" and (seen.shape, own.shape) == ((2, 3, 6, 6), (2,))


@pytest.mark.parametrize("mapped", [False, True])
def test_a_range_of_samples_of_some_nodes_is_gathered_from_their_pools(tmp_path, mapped):
    wrap = mapped_to(tmp_path / "x.npy") if mapped else lambda images: images
    samples = NodeDatasets(prepared(Rotate(), dataset(wrap=wrap)), CPU).train
    before = [(images[:], labels.clone()) for images, labels in samples]
    indices = {3: np.array([5, 0, 2]), 0: np.array([1, 1, 4]), 2: np.array([3, 6, 0])}
    images, labels = SamplePool(samples).look(list(indices), list(indices.values()))(slice(1, 3))
    for place, (node, own) in enumerate(indices.items()):
        assert torch.equal(images[place], before[node][0][own[1:]])
        assert torch.equal(labels[place], before[node][1][own[1:]])


def test_a_wave_of_losses_gathers_and_decodes_all_images_at_once(as_on_a_gpu, monkeypatch):
    build = lambda: MODELS["mlp"](hidden=(4,)).build((3, 6, 6), 4)  # noqa: E731
    learner = as_on_a_gpu(Learner({"mlp": build}, prepared(Rotate(), dataset()), local_training(), CPU, 1, 10))
    starts = [learner.init_models(node)[0] for node in range(4)]
    models = [[start, (start[0], starts[node - 1][1])] for node, start in enumerate(starts)]  # two heads on one core

    def losses():
        learner.resolve([learner.losses(node, models[node], 2, np.random.default_rng(node), True) for node in range(4)])

    losses()  # which checks that they can be stacked
    outputs = torch.zeros(8, 8, 4)  # two batches of four images
    monkeypatch.setattr(StackedModels, "features", lambda self, cores, images, shared: images)
    monkeypatch.setattr(StackedModels, "outputs", lambda self, heads, features: outputs)
    with CountedOperators() as operators:
        losses()
    learner.close()
    assert sum(operators.found.values()) <= 30
