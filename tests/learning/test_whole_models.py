"""Only whole models are trained, scored and tested."""

from types import SimpleNamespace

import pytest

from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.training_inputs import check_model
from ddlsim.node.candidates import EvaluationCandidates


def parts(names):
    return tuple(SimpleNamespace(part=SimpleNamespace(name=name)) for name in names.split())


@pytest.mark.parametrize("names", ["model", "core head", "core head projection prototypes"])
def test_whole_models_pass(names):
    check_model("node.train", parts(names))


@pytest.mark.parametrize("names", ["core", "head", "head core", "core", "core model", "core head head", "model head"])
def test_missing_or_reordered_parts_are_refused(names):
    with pytest.raises(DdlsimError, match=r"node.train: expected a whole model, .*, got \(" + names.split()[0]):
        check_model("node.train", parts(names))


def test_single_part_is_not_a_model():
    with pytest.raises(DdlsimError, match=r"losses: expected a model as a tuple .* got a SimpleNamespace"):
        check_model("losses", parts("model")[0])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"models": []}, "expected at least one model"),
        ({"models": [parts("model")], "choose": "test_loss"}, "choose: expected train_loss, validation_loss, "),
    ],
)
def test_candidates_are_complete_models(given, text):
    with pytest.raises(DdlsimError, match=text):
        EvaluationCandidates(**given)
