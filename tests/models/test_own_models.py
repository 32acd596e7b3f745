"""User-defined models in whole runs: frozen layers, token ids, BatchNorm with shared and local statistics."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.models import MODELS
from ddlsim.models.base import ModelSettings
from ddlsim.scenario import load

VOCABULARY, LENGTH = 12, 6
NODES, EDGES = 8, 8 * 3


@dataclass(frozen=True, kw_only=True)
class Adapted(ModelSettings):
    """784 x 128 + 128 = 100,480 frozen values and 128 x 2 + 2 x 10 + 10 = 286 trained ones."""

    def build(self, image_shape, num_classes):
        from torch import nn

        from ddlsim.models.split import SplitModel

        base = nn.Linear(784, 128).requires_grad_(False)
        head = nn.Sequential(nn.Linear(128, 2, bias=False), nn.Linear(2, num_classes))
        return SplitModel(nn.Sequential(nn.Flatten(), base, nn.ReLU()), head)


@dataclass(frozen=True, kw_only=True)
class Normed(ModelSettings):
    """784 x 4 + 4 + 2 x 4 + 4 x 10 + 10 = 3,198 trained values, 8 statistics and a count."""

    def build(self, image_shape, num_classes):
        from torch import nn

        from ddlsim.models.split import SplitModel

        core = nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4), nn.ReLU())
        return SplitModel(core, nn.Linear(4, num_classes))


@dataclass(frozen=True, kw_only=True)
class Tokens(ModelSettings):
    """A bag of embedded tokens, or with `each` a label for every token."""

    each: bool = False

    def build(self, image_shape, num_classes):
        from torch import nn

        from ddlsim.models.split import SplitModel

        embedding = nn.Embedding(VOCABULARY, 8) if self.each else nn.EmbeddingBag(VOCABULARY, 8)
        return SplitModel(embedding, nn.Linear(8, num_classes))


@pytest.fixture(autouse=True)
def own_models(monkeypatch):
    for name, made in (("adapted", Adapted), ("normed", Normed), ("tokens", Tokens)):
        monkeypatch.setitem(MODELS._plugins, name, SimpleNamespace(load=lambda made=made: made))


@pytest.fixture
def run(tmp_path):
    def run_with(*changes: str) -> tuple[dict, int]:
        sets = ("rounds=2", "evaluation.every=1", "network.header_bytes=0", "shift={name: none}", *changes)
        summary = runs.run(load("tests/helpers/smoke.yaml", sets), out=tmp_path / "run")
        lines = (tmp_path / "run" / "communication.jsonl").read_text().splitlines()
        return summary, sum(json.loads(line)["payload_bytes"] for line in lines)

    return run_with


@pytest.mark.parametrize("learning", ["real", "none"])
def test_frozen_values_are_not_sent(run, learning):
    changes = ("algorithm={name: dpsgd, final_all_reduce: false}", "model={name: adapted}", f"learning={learning}")
    assert run(*changes)[1] == 2 * EDGES * 286 * 4


@pytest.mark.parametrize("learning", ["real", "none"])
@pytest.mark.parametrize(("buffers", "values"), [("shared", 3_198 + 8), ("local", 3_198)])
def test_message_bytes_count_only_sent_values(run, buffers, values, learning):
    model = f"model={{name: normed, buffers: {buffers}}}"
    assert (
        run("algorithm={name: dpsgd, final_all_reduce: false}", model, f"learning={learning}")[1]
        == 2 * EDGES * values * 4
    )


@pytest.mark.parametrize("name", ["facade, heads: 2", "deprl", "gossip", "fedavg", "mapl, warmup_rounds: 0"])
def test_every_way_to_share_obeys_local_buffers(run, name):
    summary, _ = run(f"algorithm={{name: {name}}}", "model={name: normed, buffers: local}")
    assert summary["status"] == "done" and 0 < summary["accuracy"]["all"] <= 1


def test_algorithm_with_separate_core_and_head_needs_a_trained_core(run, tmp_path):
    with pytest.raises(ScenarioError, match=r"Adapted has no core that is trained.*facade"):
        run("model={name: adapted}")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def token_data(tmp_path):
    """Return sequences of tokens from the upper (class 1) or lower half (class 0) of the vocabulary."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 160), ("test", 40)):
        labels = rng.integers(0, 2, count)
        tokens = rng.integers(0, VOCABULARY // 2, (count, LENGTH)) + labels[:, None] * (VOCABULARY // 2)
        arrays |= {f"x_{split}": tokens.astype(np.int32), f"y_{split}": labels, f"t_{split}": tokens % 3}

    def save(each: bool) -> str:
        labels = {f"y_{split}": arrays[f"{'t' if each else 'y'}_{split}"] for split in ("train", "test")}
        np.savez(tmp_path / "tokens.npz", x_train=arrays["x_train"], x_test=arrays["x_test"], **labels)
        return f"data={{name: npz, path: {tmp_path / 'tokens.npz'}}}"

    return save


FAST = ("training.learning_rate=0.5", "rounds=10", "evaluation.every=10", "partition={name: random}")


@pytest.mark.parametrize("algorithm", ["facade, heads: 2", "el"])
def test_models_train_on_token_ids(run, token_data, algorithm):
    changes = (token_data(False), "model={name: tokens}", f"algorithm={{name: {algorithm}}}")
    assert run(*changes, *FAST)[0]["accuracy"]["all"] > 0.9


def test_every_token_can_have_a_label(run, token_data):
    changes = (token_data(True), "model={name: tokens, each: true}", "algorithm={name: el}")
    assert run(*changes, *FAST)[0]["accuracy"]["all"] > 0.9


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (("model={name: mlp}",), r"MLP cannot take the data's samples \(int32 \[6\]\)"),
        (("model={name: gn_lenet}",), "gn_lenet takes images of at least 8 x 8 pixels.* the data has 6"),
        (("model={name: tokens}", "training.augmentation=crop_flip"), "samples that are not images"),
        (("model={name: tokens}", "shift={name: rotate}"), r"rotate expects images.* int32 \[6\]"),
        (
            ("model={name: tokens, each: true}",),
            r"Tokens returns \[1, 6, 2\] for one sample.*expected a tensor \[1, 2\]",
        ),
    ],
)
def test_model_without_token_ids_is_refused_before_the_run(run, token_data, tmp_path, changes, text):
    with pytest.raises(ScenarioError, match=text):
        run(token_data(False), "algorithm={name: el}", *changes)
    assert not (tmp_path / "run").exists()


def test_labels_for_every_token_cannot_be_dealt_by_label(run, token_data):
    with pytest.raises(ScenarioError, match=r"one label per sample, got 6.*random, quantity_skew"):
        run(token_data(True), "model={name: tokens, each: true}", "partition={name: uniform}")


def test_mixed_models_take_buffers_once_for_all(run):
    with pytest.raises(ScenarioError, match=r"has no key .buffers."):
        run("model={name: mixed, models: [{name: resnet8, buffers: local}, mlp]}")


def test_server_model_must_equal_the_model_of_all_nodes(run):
    with pytest.raises(DdlsimError, match=r"the server keeps a model, but .*mlp#0, mlp#1.*fedclassavg"):
        run("algorithm={name: scaffold}", "model={name: mixed, models: [{name: mlp, hidden: [8]}, mlp]}")
