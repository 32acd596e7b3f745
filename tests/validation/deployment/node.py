"""One node of a real deployment: D-PSGD or EL-Oracle in plain PyTorch, models over TCP.

    python node.py CONFIG.json NODE     (started by deploy.py, inside the node's namespace)

ddlsim provides the definition of the experiment: the node's samples, initial seed, stream of batches and
the graph of every round. Training, messages and merging are implemented here without ddlsim. A training is slowed
down on purpose: the node rests until steps x step time x factor have passed, so that eight nodes fit onto a few cores.
"""

import copy
import json
import queue
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

from ddlsim.assembly import builders_of
from ddlsim.assembly.simulation import build_run
from ddlsim.foundation.rng import stream_seed
from ddlsim.learning.architecture import draw
from ddlsim.learning.training_inputs import draw_batches
from ddlsim.runs import load_data, prepare
from ddlsim.scenario import load

HEADER = struct.Struct("<iiq")  # sender, round, number of bytes
PORT = 7000


class Peers:
    """Connections to and from all other nodes, one thread and direction each.

    Args:
        node: this one.
        addresses: of all.
    """

    def __init__(self, node: int, addresses: list[str]):
        self._node, self._addresses = node, addresses
        self._out: dict[int, queue.SimpleQueue[bytes]] = {}
        self._arrived: dict[tuple[int, int], np.ndarray] = {}
        self._changed = threading.Condition()
        self._listener = socket.create_server((addresses[node], PORT), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def connect(self) -> None:
        """Connect to all others, which already listen."""
        for peer, address in enumerate(self._addresses):
            if peer != self._node:
                sock = socket.create_connection((address, PORT), timeout=30)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._out[peer] = queue.SimpleQueue()
                threading.Thread(target=self._write, args=(sock, self._out[peer]), daemon=True).start()

    def send(self, peers: list[int], round_num: int, model: np.ndarray) -> None:
        """Send to all of them at once; return while bytes are still in flight."""
        body = model.tobytes()
        message = HEADER.pack(self._node, round_num, len(body)) + body
        for peer in peers:
            self._out[peer].put(message)

    def receive(self, peers: list[int], round_num: int) -> dict[int, np.ndarray]:
        """Return the round's models of these peers when all have arrived."""
        wanted = [(peer, round_num) for peer in peers]
        with self._changed:
            if not self._changed.wait_for(lambda: all(key in self._arrived for key in wanted), timeout=60):
                raise TimeoutError(f"node {self._node}: round {round_num} is not complete after 60 s")
            return {peer: self._arrived.pop((peer, number)) for peer, number in wanted}

    def _write(self, sock: socket.socket, messages: "queue.SimpleQueue[bytes]") -> None:
        while True:
            sock.sendall(messages.get())

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            threading.Thread(target=self._read, args=(sock,), daemon=True).start()

    def _read(self, sock: socket.socket) -> None:
        file = sock.makefile("rb", buffering=1 << 18)
        while head := file.read(HEADER.size):
            sender, round_num, size = HEADER.unpack(head)
            model = np.frombuffer(file.read(size), dtype=np.float32)
            with self._changed:
                self._arrived[sender, round_num] = model
                self._changed.notify_all()


def flat(module: torch.nn.Module) -> np.ndarray:
    """Return all parameters as one vector."""
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def merged(own: np.ndarray, received: dict[int, np.ndarray], node: int, graph, algorithm: str) -> np.ndarray:
    """Merge with Metropolis-Hastings weights (D-PSGD) or the mean (EL)."""
    if algorithm == "dpsgd":
        weights = {peer: 1 / (1 + max(len(graph[node]), len(graph[peer]))) for peer in received}
    else:
        weights = dict.fromkeys(received, 1 / (1 + len(received)))
    total = (1 - sum(weights.values())) * own.astype(np.float64)
    for peer, model in received.items():
        total += weights[peer] * model
    return total.astype(np.float32)


class Node:
    """One node, with the definition of the experiment.

    Args:
        config: scenario (a file), step_times_s and addresses of all nodes.
        node: its number.

    Attributes:
        models: by evaluated round.
        times_s: per round since the start: begin, seconds computed, end of training, complete.
    """

    def __init__(self, config: dict, node: int):
        self.number, self._config = node, config
        self._scenario = scenario = load(config["scenario"], config.get("overrides", ()))
        prepared = prepare(load_data(scenario, download=False))
        self._rng = (run := build_run(scenario, prepared)).rng("training batches", node)
        (build,) = builders_of(scenario, prepared).values()
        own = () if scenario.algorithm_name == "dpsgd" else (node,)
        (self._module,) = draw(build, stream_seed(scenario.seed, "init", *own))
        images, labels = prepared.node_train[node]
        self._images, self._labels = torch.as_tensor(np.asarray(images)), torch.as_tensor(np.asarray(labels))
        self._graphs = [run.neighbors(round_num) for round_num in range(scenario.rounds)]
        self._warm_up()
        self.peers = Peers(node, config["addresses"])
        self.models: dict[str, np.ndarray] = {}
        self.times_s: list[list[float]] = []

    def run(self, start_s: float) -> None:
        """Run all rounds from this moment of the monotonic clock."""
        scenario, module = self._scenario, self._module
        optimizer = torch.optim.SGD(module.parameters(), lr=scenario.training.learning_rate)
        time.sleep(max(0.0, start_s - time.monotonic()))
        for round_num in range(scenario.rounds):
            begin_s = time.monotonic()
            computed_s = self._train(optimizer)
            trained_s = time.monotonic()
            own, graph = flat(module), self._graphs[round_num]
            neighbors = [int(peer) for peer in graph[self.number]]
            self.peers.send(neighbors, round_num, own)
            received = self.peers.receive(neighbors, round_num)
            complete_s = time.monotonic()
            model = merged(own, received, self.number, graph, scenario.algorithm_name)
            torch.nn.utils.vector_to_parameters(torch.from_numpy(model), module.parameters())
            self.times_s.append([begin_s - start_s, computed_s, trained_s - start_s, complete_s - start_s])
            if (round_num + 1) % scenario.evaluation.every == 0 or round_num + 1 == scenario.rounds:
                self.models[f"round_{round_num + 1}"] = model

    def _warm_up(self) -> None:
        """Train a copy first, because the first steps of a process are slow (imports)."""
        module = copy.deepcopy(self._module)
        optimizer = torch.optim.SGD(module.parameters(), lr=self._scenario.training.learning_rate)
        for _ in range(10):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(self._images[:8]), self._labels[:8]).backward()
            optimizer.step()
        torch.nn.utils.vector_to_parameters(torch.from_numpy(flat(module)), module.parameters())

    def _train(self, optimizer: torch.optim.Optimizer) -> float:
        """Run the local steps and rest; return the seconds without the rest."""
        training, module = self._scenario.training, self._module
        begin_s = time.monotonic()
        for batch in draw_batches(self._rng, len(self._labels), training.batch_size, training.local_steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(self._images[batch]), self._labels[batch]).backward()
            optimizer.step()
        computed_s = time.monotonic() - begin_s
        lasts_s = training.local_steps * self._config["step_times_s"][self.number]
        time.sleep(max(0.0, lasts_s - computed_s))
        return computed_s


def main() -> None:
    config, number = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    torch.set_num_threads(1)
    node = Node(config, number)
    print("listening", flush=True)
    sys.stdin.readline()
    node.peers.connect()
    print("connected", flush=True)
    node.run(float(sys.stdin.readline()))
    np.savez(Path(config["out"]) / f"node_{number}.npz", times_s=np.array(node.times_s), **node.models)
    print("done", flush=True)
    sys.stdin.readline()  # connections stay open until all have finished


if __name__ == "__main__":
    main()
