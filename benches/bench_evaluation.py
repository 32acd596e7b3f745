"""Evaluation of 32 nodes: core features once for all heads, equal models once; against the loop over models.

The loop evaluates model after model in plain PyTorch (see helpers/facade_cell.py). 100 test images per cluster.
"""

from itertools import chain

import facade_cell as cell
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim.learning.batches import draw_batches

TEST_SAMPLES, SAMPLES = 100, 200
ALTERNATIVE = "plain PyTorch loop over the models"


@pytest.fixture(scope="module")
def learner():
    learner = cell.make_learner(SAMPLES, TEST_SAMPLES)
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def models(learner):
    """Per node two models that share their core."""
    drawn = [learner.init_models(node, count=cell.HEADS) for node in range(cell.NODES)]
    return [[(models[0][0], model[1]) for model in models] for models in drawn]


def batched(learner, models) -> list[list[tuple[np.ndarray, float]]]:
    jobs = [learner.test(its, int(learner.shards.node_cluster[node])) for node, its in enumerate(models)]
    learner.jobs.force(jobs)
    return [job.value for job in jobs]


@torch.no_grad()
def plain(learner, models) -> list[list[tuple[np.ndarray, float]]]:
    module, found = cell.plain_layers(), []
    with cell.plain_threads():
        for node, its in enumerate(models):
            images, labels = learner.shards.evaluation("test", int(learner.shards.node_cluster[node]))
            found.append([])
            for model in its:
                cell.plain_load(module, model)
                logits = module(images)
                pairs = torch.bincount(labels * cell.CLASSES + logits.argmax(1), minlength=cell.CLASSES**2)
                confusion = pairs.reshape(cell.CLASSES, cell.CLASSES).numpy()
                found[-1].append((confusion, F.cross_entropy(logits, labels).item()))
    return found


def check(ours, theirs) -> None:
    for (our_confusion, our_loss), (confusion, loss) in zip(chain(*ours), chain(*theirs), strict=True):
        assert np.array_equal(our_confusion.sum(1), confusion.sum(1))
        assert abs(our_confusion - confusion).sum() <= 4  # two predictions may stand on the edge
        assert our_loss == pytest.approx(loss, abs=1e-4)


def test_two_heads_per_node(ratio, learner, models):
    check(batched(learner, models), plain(learner, models))
    ratio(lambda: batched(learner, models), lambda: plain(learner, models), ALTERNATIVE, 3)


def test_nodes_with_one_model(ratio, learner, models):
    """After an all-reduce; two clusters, so two evaluations."""
    same = [models[0][:1]] * cell.NODES
    check(batched(learner, same), plain(learner, same))
    ratio(lambda: batched(learner, same), lambda: plain(learner, same), ALTERNATIVE, 3)


@pytest.mark.parametrize("common", [False, True], ids=["other_batches", "same_batches"])
def test_head_losses(ratio, learner, models, common):
    """FACADE's choice of a head: 10 batches per head, other ones (its published code) or the same (its paper)."""

    def ours() -> list[list[float]]:
        jobs = [learner.losses(node, its, cell.STEPS, np.random.default_rng(node), common)
                for node, its in enumerate(models)]  # fmt: skip
        learner.jobs.force(jobs)
        return [job.value for job in jobs]

    @torch.no_grad()
    def theirs() -> list[list[float]]:
        module, found = cell.plain_layers(), []
        with cell.plain_threads():
            for node, its in enumerate(models):
                images, labels = learner.shards.train[node]
                rng = np.random.default_rng(node)
                draws = [draw_batches(rng, SAMPLES, cell.BATCH, cell.STEPS) for _ in its[: 1 if common else None]]
                found.append([])
                for model, batches in zip(its, draws * len(its) if common else draws, strict=True):
                    cell.plain_load(module, model)
                    losses = [F.cross_entropy(module(images[batch]), labels[batch]).item() for batch in batches]
                    found[-1].append(float(np.mean(losses)))
        return found

    np.testing.assert_allclose(ours(), theirs(), rtol=1e-4)
    ratio(ours, theirs, ALTERNATIVE, 5)
