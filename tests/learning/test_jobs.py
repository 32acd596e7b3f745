"""Parameters are values; jobs run on demand and in waves."""

import gc

import numpy as np
import pytest
import torch

from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.training_inputs import draw_batches


def test_nothing_is_computed_before_it_is_needed(make_learner):
    learner = make_learner()
    trained = learner.train(0, learner.init_models(0)[0], 3, np.random.default_rng(0))
    assert trained[0].row.slot is None
    learner.jobs.force_params(trained)
    assert trained[0].row.slot is not None


def test_aborted_training_is_never_run(make_learner):
    learner = make_learner()
    model = learner.init_models(0)[0]
    trained = learner.train(0, model, 3, np.random.default_rng(0))
    del trained
    gc.collect()
    learner.value(learner.losses(0, [model], 1, np.random.default_rng(1)))
    assert "training" not in learner.jobs.waves


def test_everything_pending_can_be_run(make_learner):
    learner = make_learner()
    trained = learner.train(0, learner.init_models(0)[0], 3, np.random.default_rng(0))
    merged = learner.merge([trained[1]], [1.0])
    learner.jobs.run_all()
    assert merged.row.slot is not None


def test_unreferenced_rows_are_freed(make_learner):
    learner = make_learner()
    model = learner.init_models(0)[0]
    bank = learner.rows.bank(model[0].part)
    for step in range(50):
        model = learner.train(0, model, 1, np.random.default_rng(step))
        learner.jobs.force_params(model)
    gc.collect()
    assert bank._num_allocated - len(bank._free) == 1


def test_values_survive_a_growing_bank(make_learner):
    learner = make_learner()
    models = [learner.init_models(seed)[0] for seed in range(40)]
    before = models[0][0].values().clone()
    more = [learner.init_models(seed)[0] for seed in range(40, 200)]
    assert torch.equal(models[0][0].values(), before)
    assert len({params.row.slot for model in models + more for params in model[:1]}) == 200


def test_merge_is_the_weighted_sum(make_learner):
    learner = make_learner()
    heads = [head for _, head in learner.init_models(3, 3)]
    merged = learner.merge(heads, [0.5, 0.25, 0.25])
    learner.jobs.force_params([merged])
    expected = 0.5 * heads[0].values() + 0.25 * heads[1].values() + 0.25 * heads[2].values()
    torch.testing.assert_close(merged.values(), expected)


def test_equal_merges_are_one_value(make_learner):
    learner = make_learner()
    a, b = (head for _, head in learner.init_models(3, 2))
    assert learner.merge([a, b], [0.5, 0.5]) is learner.merge([a, b], [0.5, 0.5])
    assert learner.merge([a, b], [0.5, 0.5]) is not learner.merge([a, b], [0.4, 0.6])


def test_merging_unequal_shapes_is_refused(make_learner):
    learner = make_learner()
    core, head = learner.init_models(0)[0]
    with pytest.raises(DdlsimError, match="shapes differ"):
        learner.merge([core, head], [0.5, 0.5])


def test_init_does_not_change_the_global_generator(make_learner):
    learner = make_learner()
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    learner.init_models(5)
    assert torch.equal(torch.rand(1), expected)


def test_batches_cover_the_data_before_they_repeat():
    batches = draw_batches(np.random.default_rng(0), 10, 4, 5)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4]
    assert sorted(np.concatenate(batches[:3])) == list(range(10))
