"""`ddlsim check` tests plug-in classes and reports the line of each error."""

import pytest
from typer.testing import CliRunner

from ddlsim.cli import app


@pytest.fixture
def check(write):
    """Check the scenario with a class of mine.py as a part; return the exit code and the output."""

    def check(more, key="algorithm", sets=()):
        path = write(more)
        words = [word for each in (f"{key}={{name: ./mine.py:Sub}}", *sets) for word in ("--set", each)]
        result = CliRunner().invoke(app, ["check", path, *words])
        return result.exit_code, result.stderr or result.stdout

    return check


def sub(body, base="Mine", head=""):
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return f"{head}\n@dataclass(frozen=True, kw_only=True)\nclass Sub({base}):\n{lines}\n"


def test_valid_class_passes_the_check(check):
    assert check(sub("pass"))[0] == 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("def round(self, node, state, round_num):\n    node.sleep(1.0)\n    yield node.sleep(1.0)",
         r"mine.py:36: node.sleep\(...\) takes simulated time; write `yield node.sleep\(...\)`"),
        ("def round(self, node, state, round_num):\n    (state.model,) = node.train((state.model,))",
         r"mine.py:36: node.train\(...\) takes simulated time"),
        ("def round(self, node, state, round_num):\n    return 3", r"mine.py:35: algorithm: round of Sub returns a"),
        ("def round(self, node, state, round_num):\n    yield (1, 2)", r"mine.py:36: round of Sub yields a tuple, exp"),
        ("def round(self, node, state, round_num):\n    yield 3", r"mine.py:36: round of Sub yields a int, exp"),
        ("def round(self, node, state, round_num):\n    yield node.sleep(1.0)\n    state.nix",
         r"mine.py:37: AttributeError: 'State' object has no attribute 'nix' \(state.nix\)"),
        ("def round(self, node, state, round_num):\n    yield node.receive(round_num)",
         r"node 0 waits for messages of round 0 from 1 \(open waits: "),
        ("def start(self, node):\n    yield node.sleep(1.0)", r"mine.py:35: start of Sub has a yield"),
        ("one = State(1)\ndef start(self, node):\n    self.one.model = super().start(node).model\n    return self.one",
         r"start of Sub returns the same object"),
        ("def serving(self, node, state):\n    return state.model",
         r"mine.py:35: algorithm: serving of Sub returns a Params, expected"),
        ("def serving(self, node, state):\n    return EvaluationCandidates([state.model])",
         r"expected a model as a tuple of its parts"),
        ("def serving(self, node, state):\n    return EvaluationCandidates([])", r"expected at least one model"),
        ("def finish(self, node, state, round_num):\n    yield node", r"mine.py:36: finish of Sub yields a Node"),
    ],
)  # fmt: skip
def test_faults_of_an_algorithm_are_reported_with_their_line(check, body, text):
    code, said = check(sub(body))
    assert code == 2
    import re

    assert re.search(text, said), said


TO_ONE_PEER = """
def round(self, node, state, round_num):
    (state.model,) = yield node.train((state.model,))
    node.send(node.peers(round_num)[:1], round_num, model=state.model)
    yield node.receive(round_num)
"""


def test_deadlock_is_found_on_the_topology_of_the_scenario(check):
    # In a ring of 6 each node sends only to its first neighbor: 3 to 2, so 4 receives nothing from 3.
    code, said = check(sub(TO_ONE_PEER), sets=["nodes.clusters=[6]"])
    assert code == 2 and "waits for messages of round" in said
    assert check(sub(TO_ONE_PEER), sets=["nodes.clusters=[2]", "topology={name: complete}"])[0] == 0
    assert check(sub(TO_ONE_PEER), sets=["nodes.clusters=[6]", "mode=async"])[0] == 0


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (["network.links.uplink_mbps=0"], "the uplink of nodes 0, 1 and 2 has 0 Mbit/s at all times"),
        (["network.links.downlink_mbps=0"], "the downlink of nodes 0, 1 and 2 has 0 Mbit/s at all times"),
        (["network.links={name: table, path: links.csv}"], "the uplink of node 1 has 0 Mbit/s at all times"),
        (["network.links={name: table, path: links.csv, changes: later.csv}"], ""),
        (["network.links.uplink_mbps=0", "mode=async"], ""),
        (["network.links.uplink_mbps=0", "protocol.deadline_s=5"], ""),
        (["network.links.uplink_mbps=0", "network.fidelity=latency"], ""),
        (["network.links.uplink_mbps=0", "algorithm={name: local}"], ""),
    ],
)
def test_endless_waits_for_links_of_rate_0_are_found(write, here, sets, text):
    (here / "links.csv").write_text("node,uplink_mbps,downlink_mbps,latency_ms\n0,9,9,1\n1,0,9,1\n2,9,9,1\n")
    (here / "later.csv").write_text("node,time_s,uplink_mbps,downlink_mbps\n1,2.0,5,5\n")
    words = [word for each in ("algorithm={name: dpsgd}", *sets) for word in ("--set", each)]
    result = CliRunner().invoke(app, ["check", write(), *words])
    said = " ".join((result.stderr + result.stdout).split())
    assert (result.exit_code, text in said) == (2 if text else 0, True), said


AMONG_PEERS = """
def choose(self, node, state, round_num):
    return node.peers(round_num)[: self.sampled_peers]
"""
RANDOM = "from ddlsim.algorithms.decentralized.baselines import RandomGossip"


def test_class_using_peers_must_declare_the_topology(check):
    code, said = check(sub(AMONG_PEERS, "RandomGossip", RANDOM))
    assert code == 2 and "node.peers: expected an algorithm that uses the topology" in said
    assert check(sub("uses_topology = True\n" + AMONG_PEERS, "RandomGossip", RANDOM))[0] == 0


MODEL = """
import torch
from torch import nn
from ddlsim.models.base import ModelSettings
class Forgets(nn.Linear):
    def __init__(self):
        super().__init__(784, 10)
    def forward(self, x):
        super().forward(x.flatten(1))
class There(Forgets):
    def forward(self, x):
        raise RuntimeError("Expected all tensors to be on the same device, but found cpu and cuda:0!")
class Detached(Forgets):
    def forward(self, x):
        return nn.functional.linear(x.flatten(1), self.weight, self.bias).detach()
class InPlace(Forgets):
    def forward(self, x):
        return nn.functional.linear(x.flatten(1), self.weight, self.bias).exp_().add_(1)
class Evaluates(Forgets):
    def forward(self, x):
        if self.training:
            raise ValueError("not in training")
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)
"""


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("[1]", "mine.py:58: model: build of Sub returns a list, expected a torch.nn.Module"),
        ("None", "build of Sub returns nothing (None)"),
        ("nn.Sequential(nn.Flatten(), nn.Conv1d(1, 1, 1))", "has no nn.Linear that could be the head. Make"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(1))", "cannot be cut before '1', its last linear"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(784, 9))", "Sub returns [1, 9] for one sample (float32 [1, 28"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(5, 10))", "Sub cannot take the data's samples (float32 [1, 28, 28])"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(784, 10, device='meta'))", "is torch.float32 on meta, expected"),
        ("There()", "Sub cannot take the data's samples (float32 [1, 28, 28]): RuntimeError: "),
        ("There()", "Create tensors of a forward on the device of its inputs"),
        ("Forgets()", "expected a tensor, got nothing (None)"),
        ("Detached()", "Sub has no gradients in training: RuntimeError: element 0 of tensors does not require grad"),
        ("Detached()", "Let its forward compute with its parameters, without .detach()"),
        ("InPlace()", "Let its forward compute with its parameters"),
        ("Evaluates()", "Sub has no gradients in training: ValueError: not in training. Let its forward"),
        ("nn.Nix()", "mine.py:60: AttributeError: module 'torch.nn' has no attribute 'Nix' (return nn.Nix())"),
    ],
)  # fmt: skip
def test_faults_of_a_model_are_reported(check, returned, text):
    body = f"def build(self, image_shape, num_classes):\n    from torch import nn\n    return {returned}"
    code, said = check(sub(body, "ModelSettings", MODEL), "model", ["algorithm={name: deprl}"])
    assert code == 2 and text in said


def test_unsuitable_model_is_reported_with_extra_parts_too(check):
    layers = "nn.Sequential(nn.Flatten(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 10))"
    body = f"def build(self, image_shape, num_classes):\n    from torch import nn\n    return {layers}"
    code, said = check(sub(body, "ModelSettings", MODEL), "model", ["algorithm={name: mapl}"])
    assert code == 2 and "model: Sub cannot take the data's samples (float32 [1, 28, 28]): RuntimeError: mat1" in said


def test_model_is_tested_with_values_if_it_needs_them(check):
    body = """
def build(self, image_shape, num_classes):
    from torch import nn
    layer = nn.Linear(784, num_classes)
    layer.bias.data.fill_(layer.weight.sum().item())
    return nn.Sequential(nn.Flatten(), layer)
"""
    code, said = check(sub(body, "ModelSettings", MODEL), "model", ["algorithm={name: el}"])
    assert code == 0 and "its head is its last linear layer, '1' (784 -> 10)" in said


TOPOLOGY = "import networkx as nx\nfrom ddlsim.topologies.base import Topology\n"


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("nx.MultiGraph([(0, 1)])", "mine.py:37: topology: graph of Sub returns a MultiGraph of 2 nodes"),
        (
            "nx.DiGraph([(n, (n + 1) % 30) for n in range(30)])",
            "returns a DiGraph, expected an undirected networkx.Graph",
        ),
        ("nx.path_graph(num_nodes + 1)", "expected a networkx.Graph of the nodes 0..29"),
        ("nx.Graph([(n, n) for n in range(30)])", "self-loops"),
        ("nx.gnp_random_graph(num_nodes, 0.5) if num_nodes > 7 else 1 / 0", "returns another graph for the same round"),
    ],
)
def test_faults_of_a_topology_are_reported(check, returned, text):
    body = f"def graph(self, num_nodes, round_num, seed):\n    return {returned}"
    code, said = check(sub(body, "Topology", TOPOLOGY), "topology", ["algorithm={name: el}", "nodes.clusters=[30]"])
    assert code == 2 and text in said


DATA = "import numpy as np\nfrom ddlsim.data import Dataset\nfrom ddlsim.data.dataset import DataSettings\n"
ARRAYS = """
generated = True
num_samples, image_shape, num_classes = (20, 10), (3,), {classes}
def generate(self, nodes, seed):
    x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
    return {returned}
"""
GOOD = "Dataset('d', x, y, x[:10], y[:10], 2, np.zeros(1, np.float32), np.ones(1, np.float32), 'made')"


TOKENS = GOOD.replace("x, y, x", "(t := np.full((20, 3), {})), y, t")[:-1] + ", num_tokens=3)"


@pytest.mark.parametrize(
    ("returned", "classes", "code", "text"),
    [
        (GOOD, 2, 0, "ok."),
        (GOOD, 3, 2, "generate of Sub returns data whose num_classes is 2, but the class says 3"),
        ("(x, y)", 2, 2, "generate of Sub returns a tuple, expected a ddlsim.data.Dataset"),
        ("x.nix", 2, 2, "mine.py:42: AttributeError"),
        (GOOD.replace("x, y, x", "x * np.nan, y, x"), 2, 2, "made: train samples: 60 values are not finite in float32"),
        (TOKENS.format(3), 2, 2, "made: train samples: expected token ids from 0 to below 3"),
        (TOKENS.format(-1), 2, 2, "made: train samples: expected token ids from 0 to below 3"),
        (GOOD.replace("np.ones", "np.zeros"), 2, 2, "made: expected finite mean and std, std above 0"),
    ],
)
def test_faults_of_a_data_set_are_reported(check, returned, classes, code, text):
    body = ARRAYS.format(returned=returned, classes=classes)
    sets = ["algorithm={name: el}", "partition={name: random}"]
    found, said = check(sub(body, "DataSettings", DATA), "data", sets)
    assert found == code and text in said


def test_scenarios_without_plugins_are_not_tested(write, monkeypatch):
    from ddlsim.runs import check

    monkeypatch.setattr(check, "build_simulation", None)
    result = CliRunner().invoke(app, ["check", write(), "--set", "algorithm={name: el}"])
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("key", "base", "body", "text"),
    [
        ("training.schedule", "ddlsim.learning.optimizing.schedules:Schedule",
         "def factor(self, position, length):\n    return None", "mine.py:36: factor of Sub returns nothing (None)"),
        ("training.schedule", "ddlsim.learning.optimizing.schedules:Schedule",
         "def factor(self, position, length):\n    return position.nix", "mine.py:37: AttributeError"),
        ("aggregation", "ddlsim.aggregation.base:Aggregation",
         "def combine(self, rows):\n    return rows.weights", "mine.py:36: aggregation: combine of Sub returns"),
        ("churn", "ddlsim.churn.schedule:Churn",
         "def absences(self, num_nodes, seed):\n    return {0: [(2, 1)]}", "churn: absences of Sub: of node 0: exp"),
        ("devices", "ddlsim.devices.base:Devices",
         "def draw(self, num_nodes, seed):\n    return [1.0]", "devices: draw of Sub: expected an array [3]"),
        ("network.links", "ddlsim.network.access_links:Links",
         "def draw(self, num_nodes, seed):\n    return 1.0", "links: draw of Sub returns a float, expected a"),
    ],
)  # fmt: skip
def test_parts_unused_without_learning_are_tested_separately(check, key, base, body, text):
    module, _, name = base.partition(":")
    head = f"from {module} import {name}\n"
    code, said = check(sub(body, name, head), key, ["algorithm={name: el}"])
    assert code == 2 and text in said, said


@pytest.mark.parametrize(
    ("key", "base", "returned"),
    [
        ("devices", "ddlsim.devices.base:Devices", "[0.1, 0.2, 0.3]"),
        ("devices", "ddlsim.devices.base:Devices", "StepTimeTrace(((0.0, 1.0),) * 3, ((0.1, 0.2),) * 3)"),
        ("network.links", "ddlsim.network.access_links:Links", "LinkTable(*np.full((2, 3), 1e6), np.full(3, 0.1))"),
        (
            "network.links",
            "ddlsim.network.access_links:Links",
            "LinkTable(*np.full((2, 3), 1e6), np.full((3, 3), 0.1))",
        ),
    ],
)
@pytest.mark.parametrize("count", [3, 4])
def test_calibration_file_must_match_the_number_of_nodes(check, key, base, returned, count):
    module, _, name = base.partition(":")
    more = "StepTimeTrace" if key == "devices" else "LinkTable"
    head = f"import numpy as np\nfrom {module} import {name}, {more}\n"
    body = f"def draw(self, num_nodes, seed):\n    return {returned}"
    code, said = check(sub(body, name, head), key, ["algorithm={name: el}", f"nodes.clusters=[{count}]"])
    assert code == (0 if count == 3 else 2), said
    assert count == 3 or ("expected" in said and "4" in said)
