"""Low-communication training against the papers' updates, as plain loops over quadratic losses.

Node i has the loss a_i |x - b_i|^2 / 2; the engine, the network and the collectives are real.
"""

import numpy as np
import pytest
import torch
from quadratic_runs import quadratic_simulation

NODES, ROUNDS, STEPS, RATE = 4, 6, 3, 0.1
rng = np.random.default_rng(5)
CENTERS, CURVATURES = rng.normal(size=(NODES, 2)), rng.uniform(0.5, 2, NODES)


def simulate(algorithm, *keys, **settings):
    keys = (f"algorithm={{name: {algorithm}}}", f"rounds={ROUNDS}", f"training.local_steps={STEPS}", *keys)
    fixed = {"rate": RATE, "starts": np.zeros((NODES, 2)), "curvatures": CURVATURES, "centers": CENTERS}
    return quadratic_simulation(*keys, **fixed | settings)[0]


def models(algorithm, *keys, **settings):
    """The nodes' models [N, P] at the end."""
    return np.stack([member.state.model.value for member in simulate(algorithm, *keys, **settings).members[:NODES]])


def gradients(x):
    return CURVATURES[:, None] * (x - CENTERS)


def local(x, steps=STEPS):
    """Models after local steps from x, [N, P] or [P]."""
    x = np.broadcast_to(x, CENTERS.shape)
    for _ in range(steps):
        x = x - RATE * gradients(x)
    return x


def nesterov(x, changes, rate, momentum):
    """torch's SGD with Nesterov momentum along outer gradients; returns x after each."""
    values = torch.nn.Parameter(torch.tensor(x))
    optimizer = torch.optim.SGD([values], lr=rate, momentum=momentum, nesterov=True)
    for change in changes:
        values.grad = -torch.tensor(change(values.detach().numpy()))
        optimizer.step()
    return values.detach().numpy()


@pytest.mark.parametrize("all_reduce", ["ring", "hierarchical"])
def test_data_parallel_training_follows_the_mean_gradient(all_reduce):
    x = np.zeros(2)
    for _ in range(ROUNDS * STEPS):
        x = x - RATE * gradients(x).mean(0)
    found = models(f"data_parallel, all_reduce: {all_reduce}", "nodes.clusters=[3, 1]")
    assert found == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


def test_data_parallel_training_with_adamw_is_adamw_on_the_mean_gradient():
    x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = torch.optim.AdamW([x], lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(ROUNDS * STEPS):
        x.grad = torch.tensor(gradients(x.detach().numpy()).mean(0))
        optimizer.step()
    found = models("data_parallel, adamw_rate: 0.02, beta2: 0.95, weight_decay: 0.1")
    assert found == pytest.approx(np.tile(x.detach(), (NODES, 1)), abs=1e-9)


def test_post_local_sgd_averages_after_every_step_and_later_after_all_local_steps():
    x = np.zeros(2)
    for round_num in range(ROUNDS):
        for steps in [1] * STEPS if round_num < 2 else [STEPS]:
            x = local(x, steps).mean(0)
    assert models("local_sgd, synchronous_rounds: 2") == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


def test_diloco_takes_outer_nesterov_steps_along_the_mean_change():
    x = nesterov(np.zeros(2), [lambda x: (local(x) - x).mean(0)] * ROUNDS, 0.7, 0.9)
    assert models("diloco") == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


@pytest.mark.parametrize("overlap", ["delayed", "eager"])
def test_overlapped_diloco_uses_the_other_nodes_changes_one_round_later(overlap):
    x, momentum, before = np.zeros((NODES, 2)), np.zeros((NODES, 2)), np.zeros((NODES, 2))
    for round_num in range(ROUNDS):
        change = local(x) - x
        if overlap == "eager":
            others = (before.sum(0) - before) / NODES
            outer = others + change / NODES
        else:
            outer = np.tile(before.mean(0), (NODES, 1))
        if overlap == "eager" or round_num:
            momentum = 0.9 * momentum + outer
            x = x + 0.7 * (outer + 0.9 * momentum)
        before = change
    assert models(f"diloco, overlap: {overlap}") == pytest.approx(x, abs=1e-12)


def test_overlapped_communication_takes_no_time_if_it_is_shorter_than_training():
    slow = "network.links.latency_ms=40", "devices={name: constant, step_time_s: 0.1}"  # ring: 6 messages, 0.24 s
    waiting, overlapped = (simulate(f"diloco, overlap: {name}", *slow).env.now for name in ("none", "eager"))
    assert waiting == pytest.approx(ROUNDS * (STEPS * 0.1 + 0.24), abs=0.01)
    assert overlapped == pytest.approx(ROUNDS * STEPS * 0.1, abs=0.01)


def test_noloco_steps_along_the_mean_of_random_pairs():
    simulation = simulate("noloco, outer_rate: 0.6, consensus_rate: 0.8", "topology={name: random_matching}")
    x, momentum = np.zeros((NODES, 2)), np.zeros((NODES, 2))
    pairs = set()
    for round_num in range(ROUNDS):
        peers = [graph[0] for graph in simulation.members[0].node._run.neighbors(round_num)]
        pairs.add(tuple(peers))
        change = local(x) - x
        mean_change, mean = (change + change[peers]) / 2, (x + x[peers]) / 2
        momentum = 0.5 * momentum + 0.6 * mean_change + 0.8 * (mean - x)
        x = x + momentum
    found = np.stack([member.state.model.value for member in simulation.members])
    assert len(pairs) > 1 and found == pytest.approx(x, abs=1e-12)


def test_node_that_returns_fetches_the_replica_and_members_that_never_return_are_left_out():
    offline = "[{node: 1, start_s: 0.3, end_s: 0.6}, {node: 3, start_s: 0.3, end_s: .inf}]"
    simulation = simulate("diloco", f"churn={{name: schedule, offline: {offline}}}")
    states = [member.state for member in simulation.members]
    assert states[0].model.value == pytest.approx(states[1].model.value, abs=1e-12)
    assert states[0].momentum.value == pytest.approx(states[1].momentum.value, abs=1e-12)
    assert not np.allclose(states[0].model.value, states[3].model.value)


def test_one_node_alone_takes_outer_steps_without_bytes():
    start, alone = np.zeros((1, 2)), {"curvatures": np.ones(1), "centers": np.ones((1, 2))}
    simulation = simulate("diloco, outer_momentum: 0", "nodes.clusters=[1]", starts=start, **alone)
    x = np.zeros(2)
    for _ in range(ROUNDS):
        x = x + 0.7 * (1 - (1 - RATE) ** STEPS) * (1 - x)
    assert simulation.members[0].state.model.value == pytest.approx(x, abs=1e-12)
    assert simulation.network.bytes_sent(0) == 0
