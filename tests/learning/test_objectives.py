"""Objectives of algorithms: views, targets, class means, and the same bits for any grouping."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim.algorithms.server.fedproto import FedProto
from ddlsim.learning import losses
from ddlsim.learning.training_inputs import Objective, draw_batches


def rng(node):
    return np.random.default_rng(100 + node)


def contrast(step):
    features = step.module.core(step.images)
    head = [parameter for _, parameter in step.module.head.named_parameters()]
    before = [step.start[f"head.{name}"] for name, _ in step.module.head.named_parameters()]
    return (
        F.cross_entropy(step.module.head(features), step.labels)
        + losses.supervised_contrastive(features, step.labels, 0.5)
        + losses.proximity(head, before)
    )


def train_all(learner, objective, nodes=(0, 1, 2)):
    models = {}
    for node in nodes:
        start = learner.init_models(node)[0]
        models[node] = learner.train_towards(node, start, 5, rng(node), None, {}, objective)[0]
    learner.jobs.force_params([params for model in models.values() for params in model])
    return {node: torch.cat([params.values() for params in model]) for node, model in models.items()}


@pytest.fixture
def one_operator_thread():
    """As in a wave on the CPU: Adam's first steps amplify the rounding of sums that are split over threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("augmentation", ["none", "crop_flip", "color"])
def test_grouping_changes_no_bit_of_augmented_training(make_learner, as_on_a_gpu, one_operator_thread, augmentation):
    objective = Objective(contrast, views=2, keeps_start=True)
    settings = {"augmentation": augmentation, "optimizer": "adam", "learning_rate": 0.01, "drop_last": True}
    one, two, alone = (make_learner(True, threads, **settings) for threads in (1, 2, 1))
    together, side_by_side = train_all(one, objective), train_all(two, objective)
    assert all(torch.equal(together[node], side_by_side[node]) for node in range(3))
    assert torch.equal(train_all(alone, objective, (1,))[1], together[1])
    settings = {"augmentation": augmentation, "learning_rate": 0.01, "drop_last": True}  # no Adam, see above
    plain, stacked = make_learner(True, 1, **settings), as_on_a_gpu(make_learner(True, 1, **settings))
    expected, found = train_all(plain, objective), train_all(stacked, objective)
    assert all(torch.allclose(found[node], expected[node], rtol=1e-5, atol=1e-6) for node in range(3))
    assert stacked.paths["stacked"] == {"training": 3} and not stacked.fallback_counts


def test_prototypes_of_stacked_nodes_equal_those_of_each(make_learner, as_on_a_gpu):
    """Targets of some labels, and class means of the last pass, after different numbers of steps."""
    results = []
    for learner in (make_learner(), as_on_a_gpu(make_learner())):
        models = {node: learner.init_models(node)[0] for node in range(3)}
        goals = {}
        for _ in range(2):
            objective = Objective(FedProto(proto_weight=0.5).local_loss, targets=goals, class_means=True)
            done = [
                learner.train_towards(node, model, 7 - node, rng(node), None, {}, objective)
                for node, model in models.items()
            ]
            models = {node: model for node, (model, _, _) in enumerate(done)}
            goals = {label: done[0][2][label] for label in (2, 0)}
        rows = [params for model, _, means in done for params in (*model, *means.values())]
        learner.jobs.force_params(rows)
        results.append([params.values().clone() for params in rows])
    assert learner.paths["stacked"] == {"training": 6} and not learner.fallback_counts
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_losses_that_hold_values_of_a_node_train_one_by_one(make_learner, as_on_a_gpu):
    learner = as_on_a_gpu(make_learner())
    train_all(learner, Objective(lambda step: step.module(step.images).mean()))
    ((reason, count),) = learner.fallback_counts["stacked"].items()
    assert "the loss may hold values of one node" in reason and count == 3


def test_class_means_come_from_the_last_pass(make_learner):
    learner = make_learner(learning_rate=1e-12)  # nearly zero, so that features do not change
    core, head = learner.init_models(0)[0]

    def loss(step):
        features = step.module.core(step.images)
        step.collect(features, step.labels)
        return step.module.head(features).mean()

    objective = Objective(loss, class_means=True)
    _, _, means = learner.train_towards(0, (core, head), 10, rng(0), None, {}, objective)
    learner.jobs.force_params(means.values())
    images, labels = learner.data.train[0]
    assert sorted(means) == sorted(set(labels.tolist()))
    module = learner.architecture_of(0).build()
    torch.nn.utils.vector_to_parameters(core.values().clone(), module.core.parameters())
    rows = np.concatenate(draw_batches(rng(0), 20, 4, 10)[-5:])
    with torch.no_grad():
        features = module.core(images[rows])
    for label, mean in means.items():
        torch.testing.assert_close(mean.values(), features[labels[rows] == label].mean(0), rtol=1e-4, atol=1e-5)


def test_targets_pull_features_towards_them(make_learner):
    learner = make_learner(learning_rate=0.05)
    start = learner.init_models(0)[0]

    def loss(step):
        features = step.module.core(step.images)
        step.collect(features, step.labels)
        return losses.distance_to_targets(features, step.labels, step.targets)

    means = learner.train_towards(1, start, 5, rng(1), None, {}, Objective(loss, class_means=True))[2]
    goal = {0: means[0]}
    trained = learner.train_towards(0, start, 50, rng(0), None, {}, Objective(loss, targets=goal))[0]
    learner.jobs.force_params([*trained, means[0]])
    images, labels = learner.data.train[0]

    own = images[labels == 0]

    def distance(model):
        module = learner.architecture_of(0).build()
        torch.nn.utils.vector_to_parameters(model[0].values().clone(), module.core.parameters())
        with torch.no_grad():
            return F.mse_loss(module.core(own), means[0].values().expand(len(own), -1)).item()

    assert distance(trained) < 0.8 * distance(start)
    assert torch.equal(trained[1].values(), start[1].values())  # the loss does not use the head


def test_dropping_the_last_batch_keeps_only_full_batches():
    assert [len(batch) for batch in draw_batches(rng(0), 10, 4, 5, drop_last=True)] == [4] * 5
    assert [len(batch) for batch in draw_batches(rng(0), 3, 4, 2, drop_last=True)] == [3, 3]
