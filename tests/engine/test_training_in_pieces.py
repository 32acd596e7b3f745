"""A local training in pieces equals one call, byte for byte."""

from functools import partial
from pathlib import Path

import pytest
from collective_algorithms import InPieces
from torn_runs import SMOKE, outcome

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.scenario import load

HELPERS = Path(__file__).parents[1] / "helpers"
QUICK = ("evaluation.samples=50", "rounds=2", "nodes.clusters=[2]", "records.models=last", "training.batch_size=4")
MOMENTUM = "training.optimizer={name: sgd, momentum: 0.9}"
KEPT = ("training.optimizer=adamw", "training.learning_rate=0.003", "training.optimizer_state=kept")
DROPOUT = "model={name: mlp, hidden: [8, 8], dropout: 0.5}"


def models(out: Path, pieces: str, *keys: str) -> bytes:
    algorithm = f"algorithm={{name: '{HELPERS / 'collective_algorithms.py'}:InPieces', pieces: {pieces}}}"
    runs.run(load(SMOKE, (algorithm, *QUICK, *keys)), out=out)
    return outcome(out)["models*.safetensors*"]


@pytest.mark.parametrize(
    "keys",
    [
        (MOMENTUM, "model={name: mlp, hidden: [8]}"),
        (*KEPT, DROPOUT, "training.schedule={name: cosine, warmup: 2, per: step}"),
        ("training.optimizer=adamw", DROPOUT, "training.augmentation=crop_flip", "training.accumulate=3"),
        ("training.optimizer=adagrad", "model={name: mlp, hidden: [8]}"),
    ],
)
def test_training_in_pieces_gives_the_same_models(tmp_path, keys):
    whole = models(tmp_path / "whole", "[9]", *keys)
    assert whole and models(tmp_path / "pieces", "[3, 6]", *keys) == whole
    assert models(tmp_path / "one", "[9]", *keys, "seed=1") != whole


def test_stacked_training_in_pieces_gives_the_same_models(tmp_path, monkeypatch):
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    keys = (MOMENTUM, DROPOUT, "training.augmentation=crop_flip")
    assert models(tmp_path / "pieces", "[1, 2, 6]", *keys) == models(tmp_path / "whole", "[9]", *keys)


@pytest.mark.parametrize(
    ("pieces", "keys", "text"),
    [
        ("[2, 2]", ("training.proximal=0.1",), "expected a loss without the parameters at the start"),
        ("[2, 4]", ("training.accumulate=4",), r"expected a multiple of training.accumulate \(4\) as steps, got 2"),
    ],
)
def test_unsupported_trainings_in_pieces_are_errors(tmp_path, pieces, keys, text):
    with pytest.raises(DdlsimError, match=rf"node.train: of: {text}.*\. Train all steps in one call"):
        models(tmp_path, pieces, *keys)


class TooMany(InPieces):
    """Requests more steps than the training has."""

    def round(self, node, state, round_num):
        yield node.train(state.model, 3, of=4)
        yield node.train(state.model, 3, of=4)


def test_too_many_steps_in_pieces_are_an_error(tmp_path):
    scenario = load(SMOKE, (f"algorithm={{name: '{__file__}:TooMany', pieces: [1]}}", *QUICK, "learning=none"))
    with pytest.raises(DdlsimError, match=r"node.train: of: expected at most 1 more steps of 4, .* got 3 steps"):
        runs.run(scenario, out=tmp_path)
