"""Models of texts: sizes, visible positions, and equal numbers stacked and alone."""

import pytest
import torch
from torch.func import functional_call, vmap

from ddlsim.foundation.errors import ScenarioError
from ddlsim.models import MODELS
from ddlsim.models.texts import GPT, LSTM, EmbeddingBag

TINY = {
    "lstm": {"layers": 2, "units": 5, "embedding": 3},
    "gpt": {"layers": 2, "heads": 2, "width": 8},
    "embedding_bag": {},
}


def built(name, predicts="each", tokens=7):
    torch.manual_seed(0)
    return MODELS[name](tokens=tokens, predicts=predicts, **TINY[name]).build((6,), 7).eval()


def test_default_lstm_equals_leafs():
    model = LSTM().fitted(80, ()).build((80,), 80)
    layers = 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)
    assert sum(each.numel() for each in model.parameters()) == 80 * 8 + layers + 257 * 80
    assert model(torch.zeros(2, 80, dtype=torch.int64)).shape == (2, 80)


def test_model_takes_tokens_and_positions_from_the_data():
    assert (LSTM().fitted(81, (80,)).tokens, LSTM().fitted(81, (80,)).predicts) == (81, "each")
    assert GPT(tokens=90, predicts="last").fitted(81, (80,)) == GPT(tokens=90, predicts="last")
    mixed = MODELS["mixed"](models=("lstm", {"name": "gpt", "width": 8, "heads": 2})).fitted(9, (6,))
    for build in mixed.builders((6,), 9).values():
        assert build()(torch.zeros(1, 6, dtype=torch.int64)).shape == (1, 6, 9)


def test_fewer_tokens_than_the_data_has_are_refused():
    for model in (EmbeddingBag(tokens=80), MODELS["mixed"](models=("gpt", {"name": "lstm", "tokens": 80}))):
        with pytest.raises(ScenarioError, match=r"model\.tokens: expected at least 81, the tokens of the data, got 80"):
            model.fitted(81, ())


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_position_does_not_attend_to_later_positions(name):
    model, ids = built(name), torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = ids.clone()
    changed[0, 4:] = 0
    before, after = model(ids), model(changed)
    assert torch.allclose(before[:, :4], after[:, :4], atol=1e-6) and not torch.allclose(before[:, 4], after[:, 4])


def test_bag_of_words_ignores_the_order():
    model, ids = built("embedding_bag", "last"), torch.tensor([[1, 2, 3, 4, 5, 6]])
    assert torch.allclose(model(ids), model(ids.flip(1)), atol=1e-6)


@pytest.mark.parametrize("name", sorted(TINY))
def test_models_compute_the_same_together_and_alone(name):
    model, ids = built(name, "each"), torch.randint(0, 7, (3, 4, 6))
    many = {key: torch.stack([each * scale for scale in (1, 2, -1)]) for key, each in model.named_parameters()}
    found = vmap(lambda own, x: functional_call(model, own, (x,)))(many, ids)
    for at in range(3):
        expected = functional_call(model, {key: each[at] for key, each in many.items()}, (ids[at],))
        assert torch.allclose(found[at], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GPT(width=10, heads=4), "expected a divisor of width .10., got 4"),
        (lambda: GPT(context=5).build((6,), 7), "model.context: expected at least 6"),
        (lambda: LSTM().build((3, 8, 8), 7), "sequences of token ids .T., the data has samples .3, 8, 8."),
        (lambda: EmbeddingBag().build((), 7), "token ids .T., the data has samples"),
    ],
)
def test_unsuitable_input_is_reported(make, text):
    with pytest.raises(ScenarioError, match=text):
        make()
