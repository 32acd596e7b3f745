"""A node's initial model does not depend on the number of nodes."""

import torch


def test_initial_model_of_a_node_depends_only_on_its_seed(make_learner):
    alone, among = make_learner(), make_learner()
    for seed in (1, 2, 3):
        among.init_models(seed)
    first, same = alone.init_models(7)[0], among.init_models(7)[0]
    assert all(torch.equal(a.values(), b.values()) for a, b in zip(first, same, strict=True))
    other = among.init_models(8)[0]
    assert not torch.equal(first[0].values(), other[0].values())
