"""Every weighting rule calls the merge kernel once per wave and part, including the node itself."""

import numpy as np
import pytest
import torch

from ddlsim import kernels
from ddlsim.aggregation import base

NEIGHBORS = ((1, 2, 3), (0, 2), (0, 1), (0,))
SAMPLES = {0: 10, 1: 70, 2: 5, 3: 15}
SCORES = {0: 0.9, 1: -0.2, 2: 0.4, 3: 0.1}


def rows_of(rule):
    """Return the mixing row of each node, {node: weight}."""
    if rule == "metropolis_hastings":
        return [base.metropolis_hastings(node, NEIGHBORS, peers) for node, peers in enumerate(NEIGHBORS)]
    rows = []
    for node, peers in enumerate(NEIGHBORS):
        those = {other: SAMPLES[other] for other in sorted((*peers, node))}
        rows.append(base.merge_weights(rule, node, those, {peer: SCORES[peer] for peer in peers}))
    return rows


@pytest.mark.parametrize("rule", ["uniform", "fedavg", "fedsim", "metropolis_hastings"])
def test_merge_is_a_row_stochastic_matrix_times_the_models(make_learner, monkeypatch, rule):
    calls, merge_rows = [], kernels.merge_rows
    monkeypatch.setattr(kernels, "merge_rows", lambda *arguments: calls.append(arguments) or merge_rows(*arguments))
    learner, rows = make_learner(), rows_of(rule)
    models = [learner.init_models(seed)[0] for seed in range(4)]
    merged = [
        [learner.merge([models[peer][part] for peer in row], list(row.values())) for part in range(2)] for row in rows
    ]
    learner.jobs.force_params([params for model in merged for params in model])
    assert len(calls) == 2  # core and head, all nodes together
    mixing = np.array([[row.get(node, 0.0) for node in range(4)] for row in rows])
    assert (mixing.diagonal() > 0).all()
    np.testing.assert_allclose(mixing.sum(axis=1), 1)
    for part in range(2):
        params = torch.stack([model[part].values() for model in models]).double().numpy()
        found = torch.stack([model[part].values() for model in merged])
        np.testing.assert_allclose(found, mixing @ params, atol=1e-6)
        assert torch.equal(
            found, kernels.merge(torch.from_numpy(params).float(), mixing)
        )  # the bits of the public function


def test_heads_are_merged_per_cluster_among_their_senders(make_learner):
    learner = make_learner()
    heads = [learner.init_models(seed, 2) for seed in range(3)]
    chosen = [0, 1, 0]  # the trained head of each node: nodes 0 and 2 are of one cluster
    sent = {k: [heads[node][k][1] for node in range(3) if chosen[node] == k] for k in (0, 1)}
    merged = [learner.merge(sent[k], [1 / len(sent[k])] * len(sent[k])) for k in (0, 1)]
    learner.jobs.force_params(merged)
    torch.testing.assert_close(merged[0].values(), (heads[0][0][1].values() + heads[2][0][1].values()) / 2)
    assert torch.equal(merged[1].values(), heads[1][1][1].values())
