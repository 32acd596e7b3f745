"""Models of texts: sizes, visible positions, and equal numbers stacked and alone."""

import pytest
import torch
from torch.func import functional_call, vmap

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.model_sizes import MOST_VALUES, count_step
from ddlsim.models import MODELS
from ddlsim.models.texts import GPT, LSTM, EmbeddingBag
from ddlsim.scenario import from_mapping

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


def gradients(seen=lambda tensor: tensor, **keys):
    """Return the gradients of a small GPT and a loss; `seen` is called with each tensor kept for the backward pass."""
    torch.manual_seed(0)
    model = GPT(tokens=7, predicts="each", layers=3, heads=2, width=8, **keys).build((6,), 7).train()
    ids = torch.randint(0, 7, (4, 6))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen(tensor), lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))


def test_checkpointed_blocks_have_the_same_gradients_and_keep_less():
    kept, fewer = [], []
    expected = gradients(lambda tensor: kept.append(tensor.numel()) or tensor)
    found = gradients(lambda tensor: fewer.append(tensor.numel()) or tensor, activation_checkpointing=True)
    assert expected.keys() == found.keys()
    assert all(torch.equal(values, found[name]) for name, values in expected.items())
    assert sum(fewer) < sum(kept) / 5


@pytest.mark.parametrize("size", [1, MOST_VALUES + 1], ids=["computed", "without memory"])
def test_checkpointed_blocks_add_a_forward_pass_to_a_training_step(size):
    """Per token, a block has 24 w^2 operations and 4 T w of attention; the outputs of its last matrix, 8 w^2, are not
    needed again.
    """
    width, length = 8, 6

    def step(**keys):
        gpt = GPT(tokens=7, predicts="each", layers=3, heads=2, width=width, **keys)
        return count_step(lambda: gpt.build((length,), 7), (length,), torch.int64, 4, True, size)

    plain, checkpointed = step(), step(activation_checkpointing=True)
    assert checkpointed.forward_flops == plain.forward_flops
    tokens = 3 * 4 * length
    assert plain.forward_flops == tokens * (24 * width**2 + 4 * length * width) + 4 * length * 2 * width * 7
    found = checkpointed.training_flops - plain.training_flops
    assert found == tokens * (16 * width**2 + 4 * length * width)


def test_tied_model_of_the_smallest_gpt2_has_its_size():
    keys = {"tokens": 50_257, "predicts": "each", "layers": 12, "heads": 12, "width": 768}
    with torch.device("meta"):
        model = GPT(**keys, tie_word_embeddings=True).build((1024,), 50_257)
    assert sum(each.numel() for each in model.parameters()) == 124_439_808


def test_tied_output_layer_is_the_embedding():
    model = GPT(tokens=11, predicts="each", width=8, heads=2, tie_word_embeddings=True).build((6,), 11)
    ids, inner = torch.randint(0, 11, (3, 6)), model.core.core
    weight = inner[0].tokens.weight
    assert torch.equal(model(ids), inner(ids) @ weight.T)
    (both,) = torch.autograd.grad(model(ids).square().sum(), weight)
    apart = {"0.tokens.weight": weight.detach().clone().requires_grad_()}
    outputs = functional_call(inner, apart, (ids,)) @ weight.T
    torch.testing.assert_close(both, sum(torch.autograd.grad(outputs.square().sum(), (*apart.values(), weight))))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GPT(width=10, heads=4), "expected a divisor of width .10., got 4"),
        (lambda: GPT(dropout=0.1, activation_checkpointing=True), "activation_checkpointing: expected dropout 0"),
        (
            lambda: GPT(tokens=9, tie_word_embeddings=True).build((6,), 7),
            "expected as many outputs as tokens .9., got 7",
        ),
        (lambda: GPT(context=5).build((6,), 7), "model.context: expected at least 6"),
        (lambda: LSTM().build((3, 8, 8), 7), "sequences of token ids .T., the data has samples .3, 8, 8."),
        (lambda: EmbeddingBag().build((), 7), "token ids .T., the data has samples"),
    ],
)
def test_unsuitable_input_is_reported(make, text):
    with pytest.raises(ScenarioError, match=text):
        make()


@pytest.mark.parametrize("algorithm", ["diloco", "streaming_diloco"])
def test_tied_and_checkpointed_model_trains_as_without_checkpointing(tmp_path, algorithm):
    found = set()
    for recomputed in (False, True):
        model = {"name": "gpt", "layers": 2, "heads": 2, "width": 8, "tie_word_embeddings": True}
        scenario = {
            "name": "tied",
            "algorithm": {"name": algorithm, **({"fragments": 2} if algorithm != "diloco" else {})},
            "data": {"name": "shakespeare", "length": 12},
            "partition": {"name": "random"},
            "model": {**model, "activation_checkpointing": recomputed},
            "nodes": {"clusters": [2]},
            "training": {"optimizer": "adamw", "optimizer_state": "kept", "learning_rate": 0.003, "local_steps": 4},
            "devices": {"name": "constant", "step_time_s": 0.05},
            "evaluation": {"every": 1, "samples": 10},
            "rounds": 2,
        }
        out = tmp_path / str(recomputed)
        runs.run(from_mapping(scenario), out=out)
        found.add((out / "metrics.jsonl").read_bytes())
    assert len(found) == 1
    values = runs.model_of(out, 0).state_dict()
    assert torch.equal(values["core.core.0.tokens.weight"], values["core.head.weight"])
