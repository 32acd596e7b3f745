"""Learning rate, batch size and steps of each node, compared with plain torch on every backend."""

import pytest
import torch
from local_training import local_training
from stacked_learners import rng
from torch.nn import functional as F

from ddlsim.assembly import build_learner, build_simulation
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.backends.stacked_training import StackedTraining
from ddlsim.learning.training_inputs import draw_batches
from ddlsim.runs import load_data, prepare
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load

RATES, SIZES, SAMPLES = (0.1, 0.05, 0.2), (2, 4, 7), 20
OPTIMIZERS = {
    "sgd": ({"optimizer": "sgd"}, torch.optim.SGD, {}),
    "nesterov": (  # one by one, since native plans do not support it
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adamw": ({"optimizer": "adamw"}, torch.optim.AdamW, {}),
}


def in_plain_torch(learner, net, model, node, steps, make, keys):
    module = net().train()
    start = torch.cat([params.values() for params in model])
    torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
    optimizer = make(module.parameters(), lr=RATES[node], **keys)
    images, labels = learner.data.train[node]
    for batch in draw_batches(rng(node), SAMPLES, SIZES[node], steps):
        optimizer.zero_grad()
        F.cross_entropy(module(images[torch.from_numpy(batch)]), labels[torch.from_numpy(batch)]).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_node_trains_with_its_rate_batch_size_and_steps(make_learner, as_on_a_gpu, tiny_net, name, stacked):
    keys, make, of_torch = OPTIMIZERS[name]
    learner = make_learner(learning_rate=list(RATES), batch_size=list(SIZES), epochs=[0.5, 0.6, 1.0], **keys)
    learner = as_on_a_gpu(learner) if stacked else learner
    # 20 samples: half of 10 batches, 0.6 of 5 batches, one pass of 3 batches (7, 7 and 6 samples)
    steps = [learner.training.steps(node, learner.steps_per_epoch(node)) for node in range(3)]
    assert steps == [5, 3, 3]
    starts = [learner.init_models(node)[0] for node in range(3)]
    trained = [learner.train(node, starts[node], steps[node], rng(node)) for node in range(3)]
    learner.jobs.force_params([params for model in trained for params in model])
    assert list(learner.paths) == ["stacked" if stacked else "native"]
    for node in range(3):
        expected = in_plain_torch(learner, tiny_net, starts[node], node, steps[node], make, of_torch)
        found = torch.cat([params.values() for params in trained[node]])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("optimizer", "waves"), [("adam", [3]), ("rprop", [1, 1, 1])])
def test_nodes_with_different_rates_share_a_stacked_wave(make_learner, as_on_a_gpu, monkeypatch, optimizer, waves):
    found, train = [], StackedTraining.train
    monkeypatch.setattr(StackedTraining, "train", lambda *args: (found.append(len(args[2])), train(*args)))
    learner = as_on_a_gpu(make_learner(learning_rate=list(RATES), optimizer=optimizer))
    trained = [learner.train(node, learner.init_models(0)[0], 2, rng(node)) for node in range(3)]
    learner.jobs.force_params([params for model in trained for params in model])
    assert found == waves


def test_distributions_draw_within_bounds_for_each_node():
    whole = local_training(
        learning_rate={"name": "lognormal", "median": 0.1, "sigma": 0.5},
        batch_size={"name": "choice", "values": [8, 16]},
        local_steps={"name": "uniform", "low": 2, "high": 4},
    )
    few, many = whole.drawn(5, seed=1), whole.drawn(2000, seed=1)
    assert many.learning_rate[:5] == few.learning_rate and many.batch_size[:5] == few.batch_size
    logs = torch.tensor(many.learning_rate).log()
    assert logs.median().exp() == pytest.approx(0.1, rel=0.05) and logs.std() == pytest.approx(0.5, rel=0.05)
    for values, allowed in ((many.batch_size, [8, 16]), (many.local_steps, [2, 3, 4])):
        shares = [values.count(each) / 2000 for each in allowed]
        assert sum(shares) == 1 and shares == pytest.approx([1 / len(allowed)] * len(allowed), abs=0.05)


@pytest.mark.parametrize("learning", ["real", "none"])
def test_columns_of_one_file_set_steps_and_batch_sizes_of_a_run(tmp_path, learning):
    rows = "".join(f"{node},{node + 1},{10 * (node + 1)},pi\n" for node in range(8))
    (tmp_path / "nodes.csv").write_text(f"node,epochs,batch_size,remark\n{rows}")
    table = f"{{name: table, path: {tmp_path / 'nodes.csv'}}}"
    settings = [f"training.{key}={table}" for key in ("epochs", "batch_size")]
    given = load("smoke", [*settings, "training.local_steps=null", f"learning={learning}", "devices={name: estimated}"])
    prepared = prepare(load_data(given))
    learner = build_learner(given, prepared, "none" if learning == "none" else "cpu")
    simulation = build_simulation(given, prepared, learner, Recorder())
    # 1,250 samples a node: ceil(1250 / batch size) mini-batches, times the epochs
    steps = [member.node.local_steps for member in simulation.members]
    assert steps == [125, 2 * 63, 3 * 42, 4 * 32, 5 * 25, 6 * 21, 7 * 18, 8 * 16]
    first, last = (simulation.ports.clock.computing_s(node, 1) - 3e-4 for node in (0, 7))
    assert last == pytest.approx(8 * first)  # apart from 0.3 ms to launch a step, the work of 8 times as many samples
    learner.close()


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("learning_rate=[0.1, 0.2]", r"learning_rate: expected 8 values, one per node, got 2$"),
        ("learning_rate=[1, 1, 0, 1, 1, 1, 1, 1]", r"learning_rate\[2\]: expected a number above 0, got 0\b"),
        ("epochs=-1", r"epochs: expected a number above 0, got -1\b"),
        ("batch_size={name: choice, values: [0.5]}", "batch_size: expected a valid integer, got 0.5 for node 0"),
        ("batch_size={name: unifrm}", "unknown name 'unifrm'. Did you mean 'uniform'"),
        ("local_steps={name: uniform, low: 3, hgh: 5}", "unknown key 'hgh'. Allowed here: name, low, high"),
        ("learning_rate={name: uniform, low: 3, high: 1}", r"expected low of at most high \(1\), got 3"),
    ],
)
def test_invalid_settings_of_nodes_are_errors(setting, text):
    with pytest.raises(ScenarioError, match=text) as error:
        load("smoke", [f"training.{setting}"])
    assert len(str(error.value).splitlines()) == 1
