"""Similarities in waves equal plain PyTorch, over trained parameters only."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim import kernels
from ddlsim.foundation.errors import DdlsimError


def flat(learner, model) -> torch.Tensor:
    """Return the trained parameters of a model, without its buffers."""
    learner.jobs.force_params(model)
    return torch.cat(
        [
            params.values()[entry.start - params.part.entries[0].start :][: entry.stop - entry.start]
            for params in model
            for entry in params.part.entries
            if entry.trainable
        ]
    )


def headed(head: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(core=nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Flatten()), head=head))


def expected(metric, alpha, own, peer, start, own_last, peer_last) -> float:
    if metric == "inverse_l2":
        return 1 / ((own - peer).norm().item() + 1e-6)
    if metric == "cosine_weights":
        return F.cosine_similarity(own, peer, dim=0).item()
    last = F.cosine_similarity(own - own_last, peer - peer_last, dim=0).item()
    return alpha * last + (1 - alpha) * F.cosine_similarity(own - start, peer - start, dim=0).item()


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("metric", "alpha"),
    [
        ("inverse_l2", 0),
        ("cosine_weights", 0),
        ("cosine_gradients", 0),
        ("cosine_gradients", 0.3),
        ("cosine_gradients", 1),
    ],
)
def test_wave_equals_pairs_one_by_one(make_learner, batch_norm, whole, metric, alpha):
    learner = make_learner(batch_norm)
    ((start,),) = [learner.init_models(1, whole=whole)]
    lasts = [learner.train(node, start, 3, np.random.default_rng(node)) for node in range(3)]
    models = [learner.train(node, lasts[node], 3, np.random.default_rng(9 + node)) for node in range(3)]
    ends = {"start": start} if alpha < 1 else {}
    jobs = []
    for node in range(3):
        peers = [peer for peer in range(3) if peer != node]
        if alpha > 0:
            ends |= {"own_last": lasts[node], "peers_last": [lasts[peer] for peer in peers]}
        references = (ends | {"alpha": alpha}) if metric == "cosine_gradients" else {}
        jobs.append(learner.compare(metric, models[node], [models[peer] for peer in peers], **references))
    learner.jobs.force(jobs)
    assert learner.jobs.waves["comparison"] == [3]
    for node, job in enumerate(jobs):
        peers = [peer for peer in range(3) if peer != node]
        plain = [
            expected(
                metric,
                alpha,
                *(flat(learner, m) for m in (models[node], models[peer], start, lasts[node], lasts[peer])),
            )
            for peer in peers
        ]
        assert job.value == pytest.approx(plain, rel=1e-5)


def test_unchanged_model_has_no_update_direction(make_learner):
    learner = make_learner()
    start = learner.init_models(1)[0]
    moved = learner.train(0, start, 2, np.random.default_rng(0))
    assert learner.value(learner.compare("cosine_gradients", start, [moved], start=start)) == [0]


def test_buffers_do_not_count(make_learner):
    """Two models that differ only in their BatchNorm statistics are identical."""
    learner = make_learner(batch_norm=True)
    model = learner.init_models(1, whole=True)[0]
    values = model[0].values().clone()
    for entry in model[0].part.entries:
        if not entry.trainable:
            values[entry.start : entry.stop] += 5
    other = (learner.rows.store(model[0].part, values),)
    assert learner.value(learner.compare("inverse_l2", model, [other])) == pytest.approx([1e6])


def test_similarities_of_classifiers_of_a_wave_are_one_call(make_learner, monkeypatch):
    learner = make_learner()
    heads = [learner.init_models(node)[0][1] for node in range(4)]
    calls, compute = [], kernels.class_cosine
    monkeypatch.setattr(
        kernels, "class_cosine", lambda *given, **named: calls.append(len(given[3])) or compute(*given, **named)
    )
    alone = [
        learner.value(learner.class_cosine(heads[0], heads[1:3])),
        learner.value(learner.class_cosine(heads[2], [])),
    ]
    jobs = [learner.class_cosine(heads[0], heads[1:3]), learner.class_cosine(heads[2], [])]
    jobs.append(learner.class_cosine(heads[3], heads))
    learner.jobs.force(jobs)
    assert calls == [2, 0, 6]
    assert [job.value for job in jobs[:2]] == alone
    rows = [head.values().view(3, -1) for head in heads]
    expected = [F.cosine_similarity(rows[3], other).mean().item() for other in rows]
    assert jobs[2].value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_the_classifier_is_the_weights_of_the_last_linear_layer(make_learner, bias):
    learner = make_learner(builders={"headed": lambda: headed(nn.Linear(144, 3, bias=bias))})
    head = learner.init_models(0)[0][1]
    weights = learner.classifier(head)
    learner.jobs.force_params((weights,))
    assert torch.equal(weights.values(), head.values()[: 3 * 144])


def test_a_head_without_a_last_linear_layer_has_no_classifier(make_learner):
    learner = make_learner(builders={"headed": lambda: headed(nn.Sequential(nn.Linear(144, 3), nn.LayerNorm(3)))})
    with pytest.raises(DdlsimError, match="does not end in a linear layer that is trained"):
        learner.classifier(learner.init_models(0)[0][1])
