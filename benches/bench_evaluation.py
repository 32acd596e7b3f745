"""Evaluation of 32 nodes: core features once for all heads, equal models once; against the loop over models.

The loop evaluates model after model in plain PyTorch (see helpers/facade_cell.py). 100 test images per cluster.
"""

from itertools import cycle

import facade_cell as cell
import numpy as np
import pytest

TEST_SAMPLES, SAMPLES = 100, 200
ALTERNATIVE = "plain PyTorch loop over the models"


@pytest.fixture(scope="module")
def learner():
    learner = cell.make_learner(SAMPLES, TEST_SAMPLES)
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def models(learner):
    """Return two models per node that share their core."""
    return cell.two_heads_per_node(learner)


@pytest.fixture(scope="module")
def others(learner):
    """Models that alternate with `models`, because unchanged models are not evaluated again."""
    return cell.two_heads_per_node(learner, first_seed=cell.NODES)


def time_in_turns(ratio, learner, *turns):
    """Time evaluations of all nodes' models by ddlsim in turns; the alternative evaluates the first set."""
    for models in turns:
        cell.check_tested(cell.evaluation(learner, models), cell.plain_evaluation(learner, models))
    turn = cycle(turns)
    ratio(
        lambda: cell.evaluation(learner, next(turn)), lambda: cell.plain_evaluation(learner, turns[0]), ALTERNATIVE, 3
    )


def test_two_heads_per_node(ratio, learner, models, others):
    time_in_turns(ratio, learner, models, others)


def test_nodes_with_one_model(ratio, learner, models, others):
    """After an all-reduce; two clusters, so two evaluations."""
    time_in_turns(ratio, learner, [models[0][:1]] * cell.NODES, [others[0][:1]] * cell.NODES)


@pytest.mark.parametrize("common", [False, True], ids=["other_batches", "same_batches"])
def test_head_losses(ratio, learner, models, common):
    """FACADE's choice of a head: 10 batches per head, different ones (published code) or the same (paper)."""
    ours = lambda: cell.head_losses(learner, models, common)  # noqa: E731
    theirs = lambda: cell.plain_head_losses(learner, models, common)  # noqa: E731
    np.testing.assert_allclose(ours(), theirs(), rtol=1e-4)
    ratio(ours, theirs, ALTERNATIVE, 5)
