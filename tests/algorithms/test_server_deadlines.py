"""Clients that miss a server's deadline, computed by hand on quadratic losses.

Steps take 1, 2 and 50 s, the deadline is 5 s, so the server's 24 rounds take 120 s. Node 2 ends trainings at 50 and 100
s, in rounds 10 and 20 of the server.
"""

import numpy as np
import pytest
from quadratic_runs import quadratic_run

RATE, CENTERS = 0.1, np.array([[1.0], [2.0], [-9.0]])
KEYS = (
    *("rounds=24", "partition={name: random, samples_per_node: 20}", "network.links.latency_ms=1"),
    "devices={name: per_node, step_times_s: [1, 2, 50]}",
)


def train(models, nodes):
    return np.stack([models[node] - RATE * (models[node] - CENTERS[node]) for node in nodes])


@pytest.mark.parametrize("late", ["drop", "keep"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox"])
def test_late_client_fetches_the_current_model_and_delays_no_round(algorithm, late):
    server, slow = [np.zeros(1)], np.zeros(1)
    for round_num in range(24):
        current = server[-1]
        trained = train([current] * 2, (0, 1))
        if round_num in (10, 20):
            update, slow = slow - RATE * (slow - CENTERS[2]), current
            trained = np.vstack([trained, update]) if late == "keep" else trained
        server.append(trained.mean(0))
    protocol = f"protocol={{deadline_s: 5, late_messages: {late}}}"
    name = f"algorithm={{name: {algorithm}}}"
    models, time_s = quadratic_run(*KEYS, protocol, name, rate=RATE, starts=np.zeros((3, 1)), centers=CENTERS)
    assert models == pytest.approx(np.stack([server[-1], server[-1], slow]), abs=1e-12)
    assert time_s == pytest.approx(120, abs=0.1)


def test_client_missing_every_deadline_always_trains_the_servers_model():
    keys = (*KEYS[:-1], "devices={name: per_node, step_times_s: [1, 2, 6]}", "protocol={deadline_s: 5}")
    server = [np.zeros(1)]
    for _ in range(24):
        server.append(train([server[-1]] * 2, (0, 1)).mean(0))
    models, time_s = quadratic_run(
        *keys, "algorithm={name: fedavg}", rate=RATE, starts=np.zeros((3, 1)), centers=CENTERS
    )
    # It joins at 6, 12, ..., 114 s; at 114 s the server is in round 22.
    assert models == pytest.approx(np.stack([server[24], server[24], server[22]]), abs=1e-12)
    assert time_s == pytest.approx(120, abs=0.1)


def test_client_of_a_lost_message_continues_with_the_servers_model():
    keys = ("algorithm={name: fedavg}", "network.drop_probability=0.3", "network.on_drop=drop", "rounds=60")
    models, _ = quadratic_run(*KEYS, *keys, rate=0.0, starts=np.array([[0.0], [1.0], [2.0]]))
    assert np.ptp(models) < 1e-12
