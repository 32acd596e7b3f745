"""CPU seconds of a training round, memory and accuracy: ddlsim and three other simulators on one task and thread.

    python benches/peer_rounds.py ddlsim fedavg|gossip CIFAR10.npz
    python benches/peer_rounds.py flower fedavg CIFAR10.npz          # pip install 'flwr[simulation]'
    python benches/peer_rounds.py fluke fedavg CIFAR10.npz           # pip install fluke-fl
    PYTHONPATH=GOSSIPY_CHECKOUT python benches/peer_rounds.py gossipy gossip CIFAR10.npz

32 nodes have 80 images of CIFAR-10 each; in a round each one makes 10 SGD steps of 8 images (learning rate 0.01) on
GN-LeNet's 89,834 parameters. fedavg: a server averages all models after each round. gossip: a node sends its model to
one random neighbor of a 4-regular graph, merges received models and trains. Evaluation is only at the end. Every figure
comes from two processes, of 2 rounds and of `ROUNDS`: the CPU time per round is the difference by the number of rounds
(user and system time of all processes, without imports, data and start-up), memory is the largest
sum of proportional set sizes, sampled four times a second; accuracy is from the longer one, on 1,000 test images
(fedavg: of the server's model; gossip: mean over nodes).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NODES, IMAGES, BATCH, RATE, TEST = 32, 80, 8, 0.01, 1000
ROUNDS = 10


def arrays(path: str) -> tuple[np.ndarray, ...]:
    """Return the first 2,560 training and 1,000 test images as float32 [n, 3, 32, 32], normalized, with labels."""
    with np.load(path) as found:
        x, y = found["x_train"][: NODES * IMAGES], found["y_train"][: NODES * IMAGES]
        x_test, y_test = found["x_test"][:TEST], found["y_test"][:TEST]
    x, x_test = ((each.transpose(0, 3, 1, 2) / 255.0).astype(np.float32) for each in (x, x_test))
    mean, std = x.mean((0, 2, 3), keepdims=True), x.std((0, 2, 3), keepdims=True)
    return (x - mean) / std, y, (x_test - mean) / std, y_test


def gn_lenet():
    """Return the network in plain PyTorch."""
    from torch import nn

    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.GroupNorm(2, outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


def accuracy(model, x_test, y_test) -> float:
    """Return the accuracy of a module."""
    import torch

    model.eval()
    with torch.no_grad():
        return float((model(torch.as_tensor(x_test)).argmax(1) == torch.as_tensor(y_test)).float().mean())


def ddlsim(algorithm: str, rounds: int, path: str) -> float:
    """Run ddlsim."""
    import ddlsim as api

    x, y, x_test, y_test = arrays(path)
    scenario = {
        "name": "peer-rounds",
        "rounds": rounds,
        "mode": "async" if algorithm == "gossip" else "sync",
        "nodes": {"clusters": [NODES]},
        "algorithm": {"name": algorithm},
        "topology": {"name": "random_regular", "degree": 4, "dynamic": True},
        "model": {"name": "gn_lenet"},
        "partition": {"name": "iid"},
        "training": {"optimizer": "sgd", "learning_rate": RATE, "batch_size": BATCH, "local_steps": IMAGES // BATCH},
        "evaluation": {"every": 10**6},
    }
    with tempfile.TemporaryDirectory() as folder:
        data = {"train": (x, y), "test": (x_test, y_test), "layout": "channels_first"}
        run = api.run(scenario, data=data, out=Path(folder) / "run", progress="none")
        return run.summary["accuracy"]["all"]


def flower(algorithm: str, rounds: int, path: str) -> float:
    """Run Flower's simulation engine: FedAvg, all clients each round, two workers of Ray."""
    from flwr.client import ClientApp
    from flwr.common import Context
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    found = {}

    def evaluate(server_round, parameters, config):
        if server_round != rounds:
            return None
        *_, x_test, y_test = arrays(path)
        model = gn_lenet()
        _load(model, parameters)
        found["accuracy"] = accuracy(model, x_test, y_test)
        return 0.0, {}

    def server_fn(context: Context) -> ServerAppComponents:
        strategy = FedAvg(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=NODES,
            min_available_clients=NODES,
            evaluate_fn=evaluate,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))

    os.environ["DDLSIM_PEER_DATA"] = path
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(ServerApp(server_fn=server_fn), ClientApp(client_fn=flower_client), NODES, backend_config=resources)
    return found["accuracy"]


def _load(model, parameters) -> None:
    import torch

    names = model.state_dict().keys()
    model.load_state_dict({name: torch.as_tensor(value) for name, value in zip(names, parameters, strict=True)})


_data: dict[str, tuple[np.ndarray, ...]] = {}


def flower_client(context):
    """Return a client that loads the server's model, trains, and returns its values. A worker reads the data once."""
    import torch
    from flwr.client import NumPyClient

    torch.set_num_threads(1)
    if not _data:
        _data["all"] = arrays(os.environ["DDLSIM_PEER_DATA"])
    node = int(context.node_config["partition-id"])
    own = slice(node * IMAGES, (node + 1) * IMAGES)
    x, y = (torch.as_tensor(each[own]) for each in _data["all"][:2])

    class Client(NumPyClient):
        def fit(self, parameters, config):
            model = gn_lenet()
            _load(model, parameters)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            order = torch.randperm(IMAGES)
            for chosen in order.split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
            return [value.numpy() for value in model.state_dict().values()], IMAGES, {}

        def get_parameters(self, config):
            return [value.numpy() for value in gn_lenet().state_dict().values()]

    return Client().to_client()


def fluke(algorithm: str, rounds: int, path: str) -> float:
    """Run fluke's FedAVG, with sequential clients."""
    import torch
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataContainer, DataSplitter
    from fluke.evaluation import ClassificationEval

    x, y, x_test, y_test = (torch.as_tensor(each) for each in arrays(path))
    splitter = DataSplitter(
        DataContainer(x, y, x_test, y_test, 10), distribution="iid", client_split=0.0, server_test=True, keep_test=True
    )
    keys = DDict(
        model=gn_lenet(),
        client=DDict(
            batch_size=BATCH,
            local_epochs=1,
            loss=torch.nn.CrossEntropyLoss,
            optimizer=DDict(name="SGD", lr=RATE),
            scheduler=DDict(name="StepLR", gamma=1, step_size=1),
        ),
        server=DDict(weighted=True),
    )
    FlukeENV().set_evaluator(ClassificationEval(eval_every=10**6, n_classes=10))
    federation = FedAVG(NODES, splitter, keys)
    federation.run(rounds, 1.0, finalize=False)
    return accuracy(federation.server.model, x_test, y_test)


def gossipy(algorithm: str, rounds: int, path: str) -> float:
    """Run gossipy's push protocol."""
    import networkx as nx
    import torch
    from gossipy import set_seed
    from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork, UniformDelay
    from gossipy.data import DataDispatcher
    from gossipy.data.handler import ClassificationDataHandler
    from gossipy.model import TorchModel
    from gossipy.model.handler import TorchModelHandler
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator, SimulationReport

    class Net(TorchModel):
        def __init__(self):
            super().__init__()
            self.net = gn_lenet()

        def init_weights(self) -> None: ...

        def forward(self, x):
            return self.net(x)

    class Dispatcher(DataDispatcher):
        def has_test(self) -> bool:
            return False

    set_seed(0)
    x, y, x_test, y_test = (torch.as_tensor(each) for each in arrays(path))
    dispatcher = Dispatcher(ClassificationDataHandler(x, y, x_test, y_test), n=NODES, eval_on_user=False)
    graph = StaticP2PNetwork(NODES, nx.to_numpy_array(nx.random_regular_graph(4, NODES, seed=0)))
    handler = TorchModelHandler(
        net=Net(),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": RATE},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=1,
        batch_size=BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    members = GossipNode.generate(dispatcher, graph, handler, 100, True)
    simulator = GossipSimulator(members, dispatcher, 100, AntiEntropyProtocol.PUSH, delay=UniformDelay(0, 10))
    simulator.add_receiver(SimulationReport())
    simulator.init_nodes(seed=0)
    simulator.start(n_rounds=rounds)
    return float(np.mean([accuracy(node.model_handler.model, x_test, y_test) for node in members.values()]))


def measured(words: list[str], rounds: int) -> tuple[float, float, dict]:
    """Return CPU seconds and MiB of a session of processes, and its last output."""
    one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    here = {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))}
    start = f"import sys, peer_rounds; peer_rounds.child({words[0]!r}, {words[1]!r}, {rounds}, {words[2]!r})"
    cpu_s: dict[int, float] = {}
    largest = 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", start], stdout=out, start_new_session=True, env=os.environ | one_thread | here
        )
        while process.poll() is None:
            largest = max(largest, _sample(process.pid, cpu_s))
            time.sleep(0.25)
        out.seek(0)
        lines = out.read().strip().splitlines()
    if process.returncode:
        sys.exit(f"{words[0]} has failed")
    return sum(cpu_s.values()), largest / 1024, json.loads(lines[-1])


def _sample(session: int, cpu_s: dict[int, float]) -> int:
    """Record CPU seconds of each process of a session (or below one); return their total kB."""
    parents, found, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.name)
        parents[pid] = int(fields[1])
        found[pid] = int(fields[3]), (int(fields[11]) + int(fields[12])) / tick
    whole = 0
    for pid, (own_session, used_s) in found.items():
        above = pid
        while above not in (0, 1, session):
            above = parents.get(above, 0)
        if own_session != session and above != session:
            continue
        cpu_s[pid] = used_s
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        whole += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return whole


def child(peer: str, algorithm: str, rounds: int, path: str) -> None:
    """Run one simulation; print its accuracy."""
    import torch

    torch.set_num_threads(1)
    found = {"ddlsim": ddlsim, "flower": flower, "fluke": fluke, "gossipy": gossipy}[peer](algorithm, rounds, path)
    print(flush=True)
    print(json.dumps({"accuracy": found}), flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:4]
    short, long = (measured(asked, rounds) for rounds in (2, ROUNDS))
    a_round = (long[0] - short[0]) / (ROUNDS - 2)
    print(
        f"{asked[0]} {asked[1]}: {a_round:.2f} CPU s a round, {long[1]:.0f} MiB, "
        f"accuracy {100 * long[2]['accuracy']:.1f} % after {ROUNDS} rounds; all of it {long[0]:.1f} CPU s"
    )
