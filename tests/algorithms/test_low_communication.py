"""Low-communication training against the papers' updates, as plain loops over quadratic losses.

Node i has the loss a_i |x - b_i|^2 / 2; the engine, the network and the collectives are real.
"""

import heapq

import numpy as np
import pytest
import torch
from quadratic_runs import Vector, quadratic_simulation
from scipy.fft import dctn, idctn

from ddlsim.algorithms.low_communication.demo import DeMo
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.learning.layout import Entry
from ddlsim.learning.size_learner import SizedParams, SizedPart

NODES, SIZE, ROUNDS, STEPS, RATE = 4, 6, 6, 3, 0.1
rng = np.random.default_rng(5)
CENTERS, CURVATURES = rng.normal(size=(NODES, SIZE)), rng.uniform(0.5, 2, NODES)


def simulate(algorithm, *keys, **settings):
    keys = (f"algorithm={{name: {algorithm}}}", f"rounds={ROUNDS}", f"training.local_steps={STEPS}", *keys)
    fixed = {"rate": RATE, "starts": np.zeros((NODES, SIZE)), "curvatures": CURVATURES, "centers": CENTERS}
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


def local_of(node, x, steps):
    """One node's model after local steps from x, [P]."""
    return local(np.tile(x, (NODES, 1)), steps)[node]


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
    x = np.zeros(SIZE)
    for _ in range(ROUNDS * STEPS):
        x = x - RATE * gradients(x).mean(0)
    found = models(f"data_parallel, all_reduce: {all_reduce}", "nodes.clusters=[3, 1]")
    assert found == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


def test_data_parallel_training_with_adamw_is_adamw_on_the_mean_gradient():
    x = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
    optimizer = torch.optim.AdamW([x], lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(ROUNDS * STEPS):
        x.grad = torch.tensor(gradients(x.detach().numpy()).mean(0))
        optimizer.step()
    found = models("data_parallel, adamw_rate: 0.02, beta2: 0.95, weight_decay: 0.1")
    assert found == pytest.approx(np.tile(x.detach(), (NODES, 1)), abs=1e-9)


def test_post_local_sgd_averages_after_every_step_and_later_after_all_local_steps():
    x = np.zeros(SIZE)
    for round_num in range(ROUNDS):
        for steps in [1] * STEPS if round_num < 2 else [STEPS]:
            x = local(x, steps).mean(0)
    assert models("local_sgd, synchronous_rounds: 2") == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


def test_diloco_takes_outer_nesterov_steps_along_the_mean_change():
    x = nesterov(np.zeros(SIZE), [lambda x: (local(x) - x).mean(0)] * ROUNDS, 0.7, 0.9)
    assert models("diloco") == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)


@pytest.mark.parametrize("overlap", ["delayed", "eager"])
def test_overlapped_diloco_uses_the_other_nodes_changes_one_round_later(overlap):
    x, momentum, before = np.zeros((NODES, SIZE)), np.zeros((NODES, SIZE)), np.zeros((NODES, SIZE))
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


def rounded(values):
    """E3M0 by its definition: the nearest power of 2 in the logarithm, of seven, or 0."""
    powers = np.abs(values).max() * 0.5 ** np.arange(7)
    found = []
    for value in values:
        distances = np.abs(np.log2(np.abs(value) / powers))
        found.append(np.sign(value) * powers[distances.argmin()] if np.abs(value) > powers[-1] * 0.5**0.5 else 0.0)
    return np.array(found)


@pytest.mark.parametrize(("bits", "overlap_steps"), [(32, 0), (32, 2), (4, 1)])
def test_streaming_diloco_steps_fragment_by_fragment_while_nodes_train(bits, overlap_steps):
    keys = f"fragments: 2, bits: {bits}, overlap_steps: {overlap_steps}, mixing: 0.25"
    found = models(f"streaming_diloco, {keys}", "training.local_steps=4")
    phi, momentum, theta, on_way = np.zeros(SIZE), np.zeros(SIZE), np.zeros((NODES, SIZE)), []
    for step in range(1, 4 * ROUNDS + 1):
        theta = local(theta, 1)
        part = {2: slice(0, 3), 0: slice(3, 6)}.get(step % 4)
        for sending in (False, True):
            if sending and part is not None:
                changes = [rounded(change) if bits == 4 else change for change in theta[:, part] - phi[part]]
                on_way.append((step + overlap_steps, part, np.mean(changes, axis=0)))
            is_last = sending and step == 4 * ROUNDS  # which nodes wait for
            if on_way and (on_way[0][0] == step or is_last):
                _, arrived, mean = on_way.pop(0)
                momentum[arrived] = 0.9 * momentum[arrived] + mean
                phi[arrived] += 0.7 * (mean + 0.9 * momentum[arrived])
                theta[:, arrived] = 0.25 * theta[:, arrived] + 0.75 * phi[arrived]
    assert found == pytest.approx(np.tile(phi, (NODES, 1)), abs=1e-12)


@pytest.mark.parametrize(
    "algorithm", ["streaming_diloco, fragments: 7", "streaming_diloco, overlap_steps: 2, fragments: 3"]
)
def test_more_fragments_than_values_and_more_overlap_than_steps_are_errors(algorithm):
    with pytest.raises(DdlsimError, match=r"expected 1 to 6 fragments|local_steps: expected at least 3 x 2"):
        simulate(algorithm, "training.local_steps=3")


def test_zero_local_steps_are_an_error():
    with pytest.raises(ScenarioError, match=r"training\.local_steps"):
        simulate("diloco", "training.local_steps=0")


@pytest.mark.parametrize("delay", [0, 2])
def test_sparta_averages_a_random_share_in_every_step(delay):
    simulation = simulate(f"sparta, share: 0.34, delay: {delay}, outer_step_per_round: true")
    node, x, momentum, on_way = simulation.members[0].node, np.zeros((NODES, SIZE)), np.zeros(SIZE), []
    start = Vector(np.zeros(SIZE))
    for round_num in range(ROUNDS):
        phi = x
        for step in range(STEPS):
            x = local(x, 1)
            share = node.random_fragment(start, 0.34, round_num * STEPS + step).columns
            on_way.append((share, x[:, share]))
            if len(on_way) > delay:
                share, sent = on_way.pop(0)
                x[:, share] += sent.mean(0) - sent
        change = (x - phi).mean(0)
        momentum = 0.9 * momentum + change
        x = phi + 0.7 * (change + 0.9 * momentum)
    assert len(share) == 2
    found = np.stack([member.state.model.value for member in simulation.members])
    assert found == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize("bits", [32, 2])
def test_sparseloco_sends_the_largest_accumulated_changes_and_keeps_the_rest(bits):
    x, error = np.zeros(SIZE), np.zeros((NODES, SIZE))
    for _ in range(ROUNDS):
        error = 0.95 * error + local(x) - x
        sent = np.zeros_like(error)
        for row, values in zip(sent, error, strict=True):
            largest = sorted(range(SIZE), key=lambda i: -abs(values[i]))[:3]
            low, high = abs(values[largest[-1]]), abs(values[largest[0]])
            for i in largest:
                size = low + (high - low) * (0.75 if abs(values[i]) > (low + high) / 2 else 0.25)
                row[i] = values[i] if bits == 32 else np.sign(values[i]) * size
        error -= sent
        x = x + sent.mean(0)
    simulation = simulate(f"sparseloco, density: 0.5, bits: {bits}", "network.header_bytes=0")
    found = np.stack([member.state.model.value for member in simulation.members])
    assert found == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)
    content = 6 + 8 if bits == 2 else 17  # 3 values of 2 + 12 or 32 + 12 bits, and a scale
    assert simulation.network.all_bytes_sent() == ROUNDS * NODES * 3 * content


def cut(values, chunk):
    """Chunks of six values as DeMo cuts them, [chunks, height, width]: a matrix of rows of `chunk`, or a vector."""
    return values.reshape(1, 2, 3) if chunk == 3 else values.reshape(2, 1, 3)


@pytest.mark.parametrize("chunk", [3, 4])
def test_demo_follows_the_sign_of_the_largest_frequencies_of_local_momenta(chunk):
    x, momentum = np.zeros(SIZE), np.zeros((NODES, SIZE))
    for _ in range(ROUNDS * STEPS):
        momentum = 0.9 * momentum + gradients(x)
        sent = [np.zeros_like(cut(x, chunk)) for _ in range(NODES)]
        for node in range(NODES):
            for own, block in zip(sent[node], cut(momentum[node], chunk), strict=True):
                frequencies = dctn(block, norm="ortho")
                for place in sorted(np.ndindex(block.shape), key=lambda place: -abs(frequencies[place]))[:2]:
                    own[place] = frequencies[place]
            momentum[node] -= np.concatenate([idctn(own, norm="ortho").ravel() for own in sent[node]])
        mean = np.sum(sent, axis=0) / np.maximum(1, np.count_nonzero(sent, axis=0))
        x = x - 0.01 * np.sign(np.concatenate([idctn(block, norm="ortho").ravel() for block in mean]))
    keys = f"rate: 0.01, decay: 0.9, chunk: {chunk}, top: 2, index_bytes: 2"
    simulation = simulate(f"demo, {keys}", "network.header_bytes=0")
    found = np.stack([member.state.model.value for member in simulation.members])
    assert found == pytest.approx(np.tile(x, (NODES, 1)), abs=1e-12)
    content = 2 * (4 + 2) * len(cut(x, chunk))
    assert simulation.network.all_bytes_sent() == ROUNDS * STEPS * NODES * 3 * content


def test_demo_sends_the_values_and_indices_of_k_frequencies_per_chunk():
    tensors = (Entry("weight", (128, 96), 0, 12288, True), Entry("bias", (128,), 12288, 12416, True))
    model = SizedParams(SizedPart("model", 12416, (12288, 128), tensors), 0)
    chunks = DeMo().chunks(model.size, model)
    assert chunks == ((2, 64, 2, 48), (1, 1, 2, 64))  # 4 chunks of 64 x 48 values, 2 of 64
    assert DeMo(top=16).wire_bytes(chunks) == (4 + 2) * 16 * (4 + 8)
    published = 85  # times less than 16-bit gradients of 64 x 64 values, with k = 8
    assert 2 * 64 * 64 / DeMo(top=8).wire_bytes(((1, 64, 1, 64),)) == pytest.approx(published, abs=0.5)
    assert DeMo(top=100, index_bytes=2).wire_bytes(chunks) == (4 * 100 + 2 * 64) * (4 + 2)


def test_noloco_steps_along_the_mean_of_random_pairs():
    simulation = simulate("noloco, outer_rate: 0.6, consensus_rate: 0.8", "topology={name: random_matching}")
    x, momentum = np.zeros((NODES, SIZE)), np.zeros((NODES, SIZE))
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
    start, alone = np.zeros((1, SIZE)), {"curvatures": np.ones(1), "centers": np.ones((1, SIZE))}
    simulation = simulate("diloco, outer_momentum: 0", "nodes.clusters=[1]", starts=start, **alone)
    x = np.zeros(SIZE)
    for _ in range(ROUNDS):
        x = x + 0.7 * (1 - (1 - RATE) ** STEPS) * (1 - x)
    assert simulation.members[0].state.model.value == pytest.approx(x, abs=1e-12)
    assert simulation.network.bytes_sent(0) == 0


SECONDS = (0.11, 0.13, 0.17, 0.29)
UNEQUAL = "network.fidelity=ideal", f"devices={{name: per_node, step_times_s: {list(SECONDS)}}}"


def arrivals(steps_of):
    """Nodes in the order in which their changes arrive, with the steps of each; messages take no time.

    Args:
        steps_of: node, whether it is the first time -> local steps.
    """
    queue = [(SECONDS[node] * steps_of(node, True), node, 1) for node in range(NODES)]
    heapq.heapify(queue)
    steps = {node: steps_of(node, True) for node in range(NODES)}
    while queue:
        now_s, node, done = heapq.heappop(queue)
        yield node, steps[node]
        if done < ROUNDS:
            steps[node] = steps_of(node, False)
            heapq.heappush(queue, (now_s + SECONDS[node] * steps[node], node, done + 1))


def delayed_nesterov(rate, momentum, size):
    """The moves of a server along changes, by the paper's equations."""
    m = total = t = 0

    def move(change):
        nonlocal m, total, t
        total, t = total + change, t + 1
        if t % size:
            return rate * change / size
        m, total = momentum * m + total / size, 0
        return rate * (momentum * m + change / size)

    return move


@pytest.mark.parametrize("dynamic", [False, True])
def test_async_diloco_takes_delayed_nesterov_steps_with_steps_by_device_speed(dynamic):
    steps, keys = 7, f"buffer_size: 5, dynamic_steps: {dynamic}"
    simulation = simulate(f"async_diloco, outer_rate: 0.6, {keys}", *UNEQUAL, f"training.local_steps={steps}")
    move, x, starts, known, taken = delayed_nesterov(0.6, 0.9, 5), np.zeros(SIZE), np.zeros((NODES, SIZE)), [], []

    def steps_of(node, first):
        return steps if first or not dynamic else int(steps * min(known) / SECONDS[node] + 1e-9)

    for node, count in arrivals(steps_of):
        known.append(SECONDS[node])
        taken.append(count)
        x = starts[node] = x + move(local_of(node, starts[node], count) - starts[node])
    assert simulation.members[NODES].state.model.value == pytest.approx(x, abs=1e-12)
    assert set(taken) == ({7, 5, 4, 2} if dynamic else {7})


def test_halos_steps_the_servers_of_sites_and_the_global_server_in_the_order_of_messages():
    """Nodes 0, 1 and 2, 3 are sites; nodes 0 and 2 run their servers. A message takes 40 ms, so a site's server takes
    steps while its change and the global model are on their way.
    """
    latency_s, k, w = 0.04, 3, 0.3
    keys = f"outer_rate: 0.6, buffer_size: 3, local_rate: 0.5, local_buffer_size: 2, accumulate: {k}, merge_weight: {w}"
    links = "network={fidelity: latency, links: {name: uniform, latency_ms: 40}}"
    simulation = simulate(f"halos, {keys}", "nodes.clusters=[2, 2]", links, UNEQUAL[1])
    x, sent, gathered = np.zeros((2, SIZE)), np.zeros((2, SIZE)), [0, 0]
    move, move_site = delayed_nesterov(0.6, 0.5, 3), [delayed_nesterov(0.5, 0.9, 2), delayed_nesterov(0.5, 0.9, 2)]
    phi, starts, done, merges = np.zeros(SIZE), np.zeros((NODES, SIZE)), [0] * NODES, [0, 0]
    events = [(SECONDS[node] * STEPS + latency_s * (node % 2), "change", node, None) for node in range(NODES)]
    while min(done) < ROUNDS or events[0][0] <= simulation.env.now:
        now_s, kind, number, value = heapq.heappop(events)
        if kind == "change":
            site = number // 2
            x[site] = x[site] + move_site[site](local_of(number, starts[number], STEPS) - starts[number])
            starts[number], done[number], gathered[site] = x[site], done[number] + 1, gathered[site] + 1
            if gathered[site] == k:
                heapq.heappush(events, (now_s + latency_s, "push", site, x[site] - sent[site]))
                sent[site], gathered[site] = x[site], 0
            if done[number] < ROUNDS:
                arrival_s = now_s + SECONDS[number] * STEPS + 2 * latency_s * (number % 2)
                heapq.heappush(events, (arrival_s, "change", number, None))
        elif kind == "push":
            phi = phi + move(value)
            heapq.heappush(events, (now_s + latency_s, "global", number, phi))
        else:
            x[number] = (1 - w) * x[number] + w * value
            sent[number], gathered[number], merges[number] = x[number], 0, merges[number] + 1
    assert min(merges) > 1
    for site, member in enumerate(simulation.members[:NODES:2]):
        assert member.state.site.model.value == pytest.approx(x[site], abs=1e-12)
    assert simulation.members[NODES].state.model.value == pytest.approx(phi, abs=1e-12)


def test_nodes_of_a_site_without_its_server_train_on_from_their_own_models():
    offline = "churn={name: schedule, offline: [{node: 0, start_s: 0, end_s: .inf}]}"
    simulation = simulate("halos", "nodes.clusters=[2, 2]", *UNEQUAL, offline)
    alone, of_site = (simulation.members[node].state.model.value for node in (1, 3))
    assert alone == pytest.approx(local_of(1, np.zeros(SIZE), ROUNDS * STEPS), abs=1e-12)
    assert not np.allclose(of_site, local_of(3, np.zeros(SIZE), ROUNDS * STEPS))
    assert simulation.members[NODES].state.updates == ROUNDS  # 2 x ROUNDS changes of nodes 2 and 3, two by two
