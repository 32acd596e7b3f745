"""A wave equals plain PyTorch, node by node."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim.learning.training_inputs import draw_batches


def rng(node: int) -> np.random.Generator:
    return np.random.default_rng(100 + node)


def plain_training(learner, module, node: int, steps: int, only: str | None = None) -> torch.Tensor:
    """Run the plain loop on a module; return its flat values."""
    images, labels = learner.data.train[node]
    trained = [p for n, p in module.named_parameters() if only is None or n.startswith(only)]
    optimizer = torch.optim.SGD(trained, 0.1)
    module.train()
    for batch in draw_batches(rng(node), len(labels), 4, steps):
        module.zero_grad()
        F.cross_entropy(module(images[batch]), labels[batch]).backward()
        optimizer.step()
    return learner.architecture_of(node).layout.flatten(module, "model")


def module_of(learner, tiny_net, model, batch_norm: bool = False):
    learner.jobs.force_params(model)
    module = tiny_net(batch_norm)
    flat = torch.cat([params.values() for params in model])
    state = module.state_dict()
    for entry in learner.architecture_of(0).layout.parts["model"].entries:
        state[entry.name] = flat[entry.start : entry.stop].reshape(entry.shape).to(state[entry.name].dtype)
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_wave_equals_training_one_by_one(make_learner, tiny_net, batch_norm, threads):
    learner = make_learner(batch_norm, threads)
    starts = [learner.init_models(node)[0] for node in range(3)]
    expected = [
        plain_training(learner, module_of(learner, tiny_net, m, batch_norm), node, 7) for node, m in enumerate(starts)
    ]
    trained = [learner.train(node, starts[node], 7, rng(node)) for node in range(3)]
    learner.jobs.force_params([params for model in trained for params in model])
    assert learner.jobs.waves["training"] == [3]
    for model, flat in zip(trained, expected, strict=True):
        torch.testing.assert_close(torch.cat([params.values() for params in model]), flat, rtol=1e-5, atol=1e-6)


def test_number_of_threads_changes_no_bit(make_learner):
    flats = []
    for threads in (1, 2):
        learner = make_learner(threads=threads)
        trained = [learner.train(node, learner.init_models(node)[0], 5, rng(node)) for node in range(3)]
        learner.jobs.force_params([params for model in trained for params in model])
        flats.append(torch.cat([params.values() for model in trained for params in model]))
    assert torch.equal(*flats)


@pytest.mark.parametrize("only", [None, "core", "head"])
def test_stacked_wave_equals_one_by_one(make_learner, as_on_a_gpu, only):
    plain, stacked = make_learner(), as_on_a_gpu(make_learner())
    flats = []
    for learner in (plain, stacked):
        trained = [learner.train(node, learner.init_models(node)[0], 5, rng(node), only) for node in range(3)]
        learner.jobs.force_params([params for model in trained for params in model])
        flats.append(torch.cat([params.values() for model in trained for params in model]))
    torch.testing.assert_close(*flats, rtol=1e-5, atol=1e-6)


def test_frozen_part_is_returned_unchanged(make_learner):
    learner = make_learner()
    core, head = learner.init_models(0)[0]
    new_core, new_head = learner.train(0, (core, head), 3, rng(0), only="head")
    learner.jobs.force_params([new_head])
    assert new_core is core
    assert not torch.equal(new_head.values(), head.values())


def test_frozen_batch_norm_keeps_its_statistics(make_learner):
    learner = make_learner(batch_norm=True)
    model = learner.init_models(0)[0]
    new_core, _ = learner.train(0, model, 3, rng(0), only="core")
    learner.jobs.force_params([new_core])
    statistics = slice(learner.architecture_of(0).layout.parts["core"].trainable_columns[-1][1], None)
    assert not torch.equal(new_core.values()[statistics], model[0].values()[statistics])
    kept_core, new_head = learner.train(0, model, 3, rng(0), only="head")
    learner.jobs.force_params([new_head])
    assert kept_core is model[0]


@pytest.mark.parametrize("changes", [{"momentum": 0.9}, {"optimizer": "adam", "learning_rate": 0.01}])
def test_optimizer_matches_torchs(make_learner, tiny_net, changes):
    learner = make_learner(**changes)
    start = learner.init_models(0)[0]
    module = module_of(learner, tiny_net, start)
    images, labels = learner.data.train[0]
    kind = torch.optim.Adam if "optimizer" in changes else torch.optim.SGD
    arguments = {"lr": 0.01} if "optimizer" in changes else {"lr": 0.1, "momentum": 0.9}
    optimizer = kind(module.parameters(), **arguments)
    for batch in draw_batches(rng(0), len(labels), 4, 6):
        optimizer.zero_grad()
        F.cross_entropy(module(images[batch]), labels[batch]).backward()
        optimizer.step()
    trained = learner.train(0, start, 6, rng(0))
    learner.jobs.force_params(trained)
    flat = torch.cat([params.values() for params in trained])
    torch.testing.assert_close(flat, learner.architecture_of(0).layout.flatten(module, "model"), rtol=1e-5, atol=1e-6)


def test_losses_are_means_of_batch_means(make_learner, tiny_net):
    learner = make_learner()
    models = [learner.init_models(seed)[0] for seed in (1, 2)]
    job = learner.losses(0, models, 5, rng(0), common=True)
    images, labels = learner.data.train[0]
    batches = draw_batches(rng(0), 20, 4, 5)
    for model, found in zip(models, learner.value(job), strict=True):
        module = module_of(learner, tiny_net, model).eval()
        with torch.no_grad():
            expected = np.mean([F.cross_entropy(module(images[b]), labels[b]).item() for b in batches])
        assert found == pytest.approx(expected, rel=1e-5)


def test_evaluation_counts_every_test_image(make_learner, tiny_net):
    learner = make_learner()
    (core, head), (_, other) = learner.init_models(5, 2)
    job = learner.test([(core, head), (core, other)], test_set=1)
    found = learner.value(job)
    images, labels = learner.data.evaluation("test", 1)
    for head_params, (_, loss, confusion) in zip((head, other), found, strict=True):
        module = module_of(learner, tiny_net, (core, head_params)).eval()
        with torch.no_grad():
            logits = module(images)
        expected = np.zeros((3, 3), dtype=int)
        np.add.at(expected, (labels.numpy(), logits.argmax(1).numpy()), 1)
        assert (confusion == expected).all()
        assert loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_same_model_is_evaluated_once(make_learner):
    learner = make_learner()
    model = learner.init_models(0)[0]
    calls = []
    run = learner.backends.run_distinct
    learner.backends.run_distinct = lambda kind, specs: calls.append(len(specs)) or run(kind, specs)
    first, second, other = learner.test([model], 0), learner.test([model], 0), learner.test([model], 1)
    learner.jobs.force([first, second, other])
    assert calls == [2]
    assert (first.value[0].confusion == second.value[0].confusion).all()


def kept_training(learner, module, node: int, calls: int, make) -> torch.Tensor:
    """Run the plain loop with one optimizer over several calls of three steps each."""
    images, labels = learner.data.train[node]
    optimizer = make(module.parameters())
    stream = rng(node)
    module.train()
    for _ in range(calls):
        for batch in draw_batches(stream, len(labels), 4, 3):
            module.zero_grad()
            F.cross_entropy(module(images[batch]), labels[batch]).backward()
            optimizer.step()
    return learner.architecture_of(node).layout.flatten(module, "model")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"optimizer": "adam", "learning_rate": 0.01}, lambda p: torch.optim.Adam(p, 0.01)),
        ({"momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.1, 0.9)),
    ],
)
def test_kept_optimizer_state_continues(make_learner, tiny_net, as_on_a_gpu, settings, make, stacked, whole):
    learner = make_learner(**settings, optimizer_state="kept")
    if stacked:
        as_on_a_gpu(learner)
    models = [learner.init_models(node, whole=whole)[0] for node in range(3)]
    modules = [module_of(learner, tiny_net, model) for model in models]
    expected = [kept_training(learner, module, node, 3, make) for node, module in enumerate(modules)]
    streams, kept = [rng(node) for node in range(3)], [None] * 3
    for _ in range(3):
        for node in range(3):
            models[node], kept[node] = learner.train_towards(
                node, models[node], 3, streams[node], None, kept[node], None
            )[:2]
    learner.jobs.force_params([params for model in models for params in model])
    assert [moments.steps for moments in kept[0].moments.values()] == [9] * len(models[0])
    for model, flat in zip(models, expected, strict=True):
        torch.testing.assert_close(torch.cat([params.values() for params in model]), flat, rtol=1e-4, atol=1e-5)


def test_kept_optimizer_of_a_frozen_part_stays(make_learner):
    learner = make_learner(optimizer="adam", optimizer_state="kept")
    model = learner.init_models(0)[0]
    _, first = learner.train_towards(0, model, 2, rng(0), None, None, None)[:2]
    _, then = learner.train_towards(0, model, 2, rng(0), "head", first, None)[:2]
    assert then.moments["core"] is first.moments["core"]
    assert then.moments["head"].steps == 4
