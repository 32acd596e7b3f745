"""Fragments: layers of models, their order, and averages fragment by fragment."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torn_runs import SMOKE, outcome

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.fragments import Fragment, equal_fragments, fragments_of, layers_of
from ddlsim.learning.layout import Entry
from ddlsim.learning.size_learner import SizeLearner, parts_of
from ddlsim.scenario import load

HELPERS = Path(__file__).parents[1] / "helpers" / "collective_algorithms.py"
QUICK = ("evaluation.samples=50", "rounds=2", "nodes.clusters=[3]", "records.models=last")
MLP = "model={name: mlp, hidden: [8, 6, 5]}"


def tensors(**sizes):
    ends = np.cumsum(list(sizes.values())).tolist()
    return [Entry(name, (size,), end - size, end, True) for (name, size), end in zip(sizes.items(), ends, strict=True)]


def test_layers_are_modules_of_the_first_list_with_several_modules():
    named = {
        "core.0.embed.weight": 10,
        "core.0.h.0.mlp.0.weight": 4,
        "core.0.h.0.mlp.1.weight": 5,
        "core.0.h.1.mlp.0.weight": 4,
        "head.weight": 3,
    }
    assert layers_of(tensors(**named)) == {
        "core.0.embed": ((0, 10),),
        "core.0.h.0": ((10, 19),),
        "core.0.h.1": ((19, 23),),
        "head": ((23, 26),),
    }


def test_layers_are_assigned_in_turn_or_in_blocks():
    layers = layers_of(tensors(**{f"h.{i}.weight": 10 for i in range(5)}))
    strided, sequential = fragments_of(layers, 2, "strided"), fragments_of(layers, 2, "sequential")
    assert [each.layers for each in strided] == [("h.0", "h.2", "h.4"), ("h.1", "h.3")]
    assert strided[1] == Fragment("fragment 1", 20, ((10, 20), (30, 40)), ("h.1", "h.3"))
    assert [each.ranges for each in sequential] == [((0, 20),), ((20, 50),)]
    assert [each.ranges for each in equal_fragments(10, 3)] == [((0, 3),), ((3, 6),), ((6, 10),)]


def run(out, *keys, **options):
    given = "".join(f", {key}: {value}" for key, value in options.items())
    name = "InFragments" if options else "LocalSGD"
    scenario = load(SMOKE, (f"algorithm={{name: '{HELPERS}:{name}'{given}}}", *QUICK, *keys))
    return runs.run(scenario, out=out)


@pytest.mark.parametrize("options", [{"count": 3}, {"count": 2, "order": "sequential"}, {"share": 1.0}])
def test_averages_by_fragments_equal_averages_of_whole_models(tmp_path, options):
    whole, parts = run(tmp_path / "whole", MLP), run(tmp_path / "parts", MLP, **options)
    assert outcome(tmp_path / "parts")["models*.safetensors*"] == outcome(tmp_path / "whole")["models*.safetensors*"]
    assert parts["bytes"]["payload"] == whole["bytes"]["payload"]


@pytest.mark.parametrize("options", [{"count": 4}, {"share": 0.05}])
def test_fragments_have_the_same_bytes_without_learning(tmp_path, options):
    keys = (MLP, "rounds=1", "training.local_steps=1", "network.compression={name: int8}")
    learned, sizes = run(tmp_path / "a", *keys, **options), run(tmp_path / "b", *keys, "learning=none", **options)
    assert learned["bytes"] == sizes["bytes"]


def test_statistics_of_batch_norm_are_sent_with_their_layer_and_not_encoded(make_learner, tiny_net):
    learner = make_learner(batch_norm=True)
    (params,) = learner.init_models(0, whole=True)[0]
    sized = SizeLearner({"tiny": parts_of("tiny", lambda: tiny_net(True))}, 3, {"train": 1}, 1)
    (other,) = sized.init_models(0, whole=True)[0]
    layers = layers_of(params.part.entries)
    assert layers == layers_of(other.part.entries)
    taken = [(learner.take(params, each), sized.take(other, each)) for each in fragments_of(layers, 2, "strided")]
    assert [values.part.trained_sizes for values, _ in taken] == [values.part.trained_sizes for _, values in taken]
    assert sum(values.size for _, values in taken) == params.size
    assert sum(values.size - sum(values.part.trained_sizes) for _, values in taken) == 2 * 4  # mean, variance


def test_bytes_of_a_random_fragment_and_of_equal_fragments(tmp_path):
    sizes = "model={name: sizes, core: 1000, head: 0}"
    assert run(tmp_path / "a", sizes, "learning=none", share=0.05)["bytes"]["payload"] == 2 * 2 * 2 * 50 * 4
    assert run(tmp_path / "b", sizes, "learning=none", count=7)["bytes"]["payload"] == 2 * 2 * 2 * 1000 * 4


def test_put_reverses_take(make_learner):
    learner = make_learner()
    (params,) = learner.init_models(0, whole=True)[0]
    fragment = Fragment("0.1", params.size // 10, drawn=(7, 3, params.size))
    taken, empty = learner.take(params, fragment), learner.merge([params], [0.0])
    negated = learner.apply(torch.neg, [taken])
    put, back = learner.put(empty, fragment, taken), learner.put(params, fragment, taken)
    learner.jobs.force_params([taken, negated, put, back])
    columns = torch.from_numpy(fragment.columns)
    assert len(set(fragment.columns.tolist())) == params.size // 10
    assert taken.values().equal(params.values()[columns]) and back.values().equal(params.values())
    assert negated.values().equal(-taken.values())
    assert put.values()[columns].equal(taken.values())
    assert put.values().count_nonzero() == taken.values().count_nonzero()
    assert not np.array_equal(Fragment("0.1", fragment.size, drawn=(7, 4, params.size)).columns, fragment.columns)


@pytest.mark.parametrize(
    ("keys", "options", "text"),
    [
        (
            (MLP,),
            {"count": 5},
            r"node.fragments: expected 1 to 4 fragments, .* the layers core.1, core.3, .*, got 5, strided",
        ),
        ((MLP,), {"count": 0}, r"node.fragments: expected 1 to 4 fragments, .*, got 0, strided"),
        ((MLP,), {"share": 1.5}, r"node.random_fragment: share: expected a number above 0, up to 1, got 1.5"),
        (
            ("model={name: sizes, core: 3, head: 0}",),
            {"count": 4},
            r"expected 1 to 3 .* has 3 values in unknown layers",
        ),
    ],
)
def test_invalid_fragments_are_errors(tmp_path, keys, options, text):
    with pytest.raises(DdlsimError, match=text):
        run(tmp_path, *keys, "learning=none", **options)
