"""The written contract of parts from outside, tried out: what `ddlsim check` finds before a run does.

Each part that is not ddlsim's own is tried alone, and an algorithm, and all that a simulation needs, in one of the
smallest size that the scenario allows: few nodes, two rounds, no learning.

Parts that are functions of their arguments, each called on a few small values: what they return is looked at.

Churn, schedules, optimizers, compressions, attacks and aggregation rules; a trial without learning calls none of these.
"""

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddlsim.data.partitions import Random
from ddlsim.engine.forgotten_yields import forgotten_yields
from ddlsim.engine.steps import no_candidates, no_steps, no_verb
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError, kind_of
from ddlsim.learning.optimizing.schedules import no_factor
from ddlsim.runs.check.first_nodes import with_first_nodes
from ddlsim.runs.check.places import method
from ddlsim.runs.loading import Loaded, load_data, prepare
from ddlsim.scenario.crosscheck import cross_problems
from ddlsim.scenario.own_parts import named_parts, origins
from ddlsim.tasks import as_task
from ddlsim.topologies.base import misdrawn

if TYPE_CHECKING:
    from ddlsim.algorithms.base import Algorithm
    from ddlsim.data.prepared import DatasetSpec
    from ddlsim.engine.simulation import Simulation
    from ddlsim.foundation.registry import Registry
    from ddlsim.node.node import Steps
    from ddlsim.scenario import Scenario


VALUES, ROWS, SAMPLES = 6, 3, 4
FIRST_ABSENCES = 20
SEED_BYTES = 8
MOST_DRAWN, MOST_ROWS = 2000, 64
"""Nodes of a graph that is drawn to know how many models a node combines; and models in a trial."""


def churn_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """Its first absences are those of nodes that exist, in order."""
    from ddlsim.assembly.learner import absences_drawn

    for absent in absences_drawn(part, scenario.nodes.count, scenario.seed).values():
        for _ in islice(absent, FIRST_ABSENCES):
            pass
    yield from ()


def schedule_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """Its factors are numbers of 0 or more, from the first position to the last, or beyond where a run asks so."""
    length = max(1, scenario.rounds)
    beyond = part.per == "step" or scenario.algorithm.has_final_exchange
    for position in sorted({0, min(1, length - 1), length - 1, *([length] if beyond else [])}):
        wrong = no_factor(part.factor(position, length), position, length)
        if wrong:
            yield f"{method(part, 'factor')} returns {wrong}"
            return


def optimizer_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """It makes an optimizer of torch, whose step leaves finite values."""
    import torch

    values = torch.ones(2, VALUES // 2, requires_grad=True)
    made = part.make([values], scenario.training.learning_rate)
    if not isinstance(made, torch.optim.Optimizer):
        yield f"{method(part, 'make')} returns {kind_of(made)}, expected a torch.optim.Optimizer"
        return
    (values * values).sum().backward()
    made.step()
    if not values.isfinite().all():
        yield f"{method(part, 'make')}: the first step from ones, with a gradient of twos, leads to {values.tolist()}"


def compression_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """What it encodes takes as many bytes as it says, and is decoded to as many values."""
    import torch

    values, sizes, seeds = torch.linspace(-1, 1, 2 * VALUES).reshape(2, VALUES), (VALUES - 2, 2), (1, 2)
    copies = torch.zeros(2, VALUES) if part.keeps_copies else None
    encoded = part.encode(values.clone(), copies, sizes, seeds)
    said, held = part.num_bytes(sizes), sum(each.nbytes for each in encoded) / 2
    if said not in (held, held + SEED_BYTES):  # a seed that the receiver needs is on the wire, but no tensor
        yield f"{method(part, 'num_bytes')} returns {said}, but encode returns {held:g} bytes a row"
        return
    copies = torch.zeros(2, VALUES) if part.keeps_copies else None
    yield from _wrong_tensor(method(part, "decode"), part.decode(encoded, copies, sizes, seeds), values)


def attack_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """What it forges has the shape of what it was given; what it poisons are samples and labels."""
    import torch

    from ddlsim.attacks.base import AttackInput, wrong_samples

    if part.forges:
        rows = [row.clone() for row in torch.linspace(-1, 1, ROWS * VALUES).reshape(ROWS, VALUES)]
        start = torch.zeros(VALUES) if part.compares_updates else None
        receiver = torch.ones(VALUES) if part.per_receiver else None
        seen = AttackInput(rows[0].clone(), rows, start, receiver, 1, scenario.nodes.count, 1)
        yield from _wrong_tensor(method(part, "forge"), part.forge(seen), rows[0])
    if part.poisons and outline is not None:
        inputs = torch.zeros(SAMPLES, *outline.image_shape, dtype=getattr(torch, outline.dtype))
        classes, shape, task = outline.num_classes, (SAMPLES, *outline.label_shape), as_task(outline.task)
        labels = torch.arange(SAMPLES) * (classes - 1) // (SAMPLES - 1)
        labels = labels.reshape(SAMPLES, *[1] * len(outline.label_shape)).expand(shape)
        labels = labels.to(getattr(torch, task.label_dtype))
        found = part.poison(inputs.clone(), labels.clone(), classes, np.random.default_rng(0))
        wrong = wrong_samples(found, inputs, labels, classes, task)
        if wrong:
            yield f"{method(part, 'poison')} returns {wrong}"


def aggregation_problems(part: Any, scenario: "Scenario", outline: Any) -> Iterator[str]:
    """How it combines rows is a Combination of just these rows."""
    from ddlsim.aggregation.base import Rows, unfit
    from ddlsim.topologies.base import neighbors

    rows = scenario.nodes.count
    if scenario.algorithm.uses_topology and rows <= MOST_DRAWN:
        rows = 1 + max(map(len, neighbors(scenario.topology, rows, 0, scenario.seed)))
    rows = min(rows, MOST_ROWS)
    seen = rows + part.needs_start
    apart = 1.0 - np.eye(seen)
    found = part.combine(Rows(np.full(rows, 1 / rows), 0, apart if part.needs_distances else None))
    wrong = unfit(found, rows, part.needs_start)
    if wrong:
        yield f"{method(part, 'combine')}{wrong}"


CALLS: "dict[str, Callable[[Any, Scenario, Any], Iterator[str]]]" = {
    "churn": churn_problems,
    "schedule": schedule_problems,
    "optimizer": optimizer_problems,
    "compression": compression_problems,
    "attacks": attack_problems,
    "aggregation": aggregation_problems,
}
"""Key of a part -> what is wrong with one of its kind, in a scenario whose samples are as an outline says (None: it is
not known)."""


def _wrong_tensor(place: str, found: Any, like: Any) -> Iterator[str]:
    """What is not as another tensor, in shape and numbers."""
    from ddlsim.attacks.base import wrong_tensor

    wrong = wrong_tensor(found, like)
    if wrong:
        yield f"{place} returns {wrong}"


ROUNDS = 2
MOST_NODES = 64
"""Nodes up to which ever larger simulations are tried; after that the scenario's own number."""
MOST_WHOLE = 256
"""Nodes up to which an algorithm is tried with all nodes of the scenario."""


def contract_problems(scenario: "Scenario", tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """What is wrong with the parts of a scenario that are not ddlsim's own, each with the line in its file.

    Args:
        scenario: checked; if all of its parts are ddlsim's own, nothing is tried.
        tell: takes a sentence on what could not be tried, or was done for a part.
    Returns:
        Nothing, if all keep their contracts.
    """
    if not origins(scenario):
        return []
    outside = {key: part for key, part in named_parts(scenario) if _table(key).about(part) is not None}
    trial = Trial(scenario, outside, tell)
    found = list(trial.lint())
    for attempt in (trial.topology, trial.data, trial.read_outline, trial.calls, trial.model, trial.simulation):
        if found:
            break
        found += trial.attempted(attempt)
    return found


@dataclasses.dataclass
class Trial:
    """A scenario whose parts from outside are tried.

    Args:
        scenario: what is checked.
        outside: key -> the part from outside that stands there.
        tell: takes sentences.
    """

    scenario: "Scenario"
    outside: dict[str, Any]
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.small = _smallest(self.scenario)
        self.outline: Any = None
        self.sizes: dict[str, int] | None = None

    @property
    def files(self) -> set[str]:
        """The files that the classes from outside, and their bases, are written in."""
        classes = [cls for part in self.outside.values() for cls in type(part).__mro__]
        own = (cls for cls in classes if cls.__module__.split(".")[0] not in ("ddlsim", "builtins", "abc", "torch"))
        return {file for cls in own if (file := own_code.source_file(cls))}

    def lint(self) -> Iterator[str]:
        """Calls that take simulated time and are not yielded."""
        if "algorithm" in self.outside:
            yield from forgotten_yields(type(self.outside["algorithm"]))

    def attempted(self, attempt: Callable[[], Iterator[str]]) -> list[str]:
        """What an attempt finds, what it raises included."""
        found: list[str] = []
        try:
            found.extend(attempt())
        except Exception as error:
            found.append(self._error_text(error))
        return found

    def _error_text(self, error: Exception) -> str:
        """An exception with the line of the user's that it went through, or else the class that it must be about."""
        frame = own_code.user_frame(error, self.files)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        key = str(error).partition(":")[0].partition(".")[0]
        parts = [self.outside[key]] if key in self.outside else list(self.outside.values())
        place = ", ".join(filter(None, (_written_at(type(part)) for part in parts)))
        place = frame.split(": ")[0] if frame else place
        if isinstance(error, DdlsimError):  # its text says what is wrong
            stated = re.match(r"\S+\.py:\d+: ", str(error))
            return str(error) if stated or not place else f"{place}: {error}"
        trial = f"a trial ({self.small.nodes.count} nodes, {ROUNDS} rounds) raises {text:.500}"
        return frame or (f"{place}: {trial}" if place else trial)

    # -- parts alone -----------------------------------------------------------------------------------------------

    def topology(self) -> Iterator[str]:
        """A topology's graph: nodes 0..n-1, no self-loops, no directions, the same when it is drawn again."""
        import networkx as nx

        topology = self.outside.get("topology")
        if topology is None:
            return
        count, seed = self.small.nodes.count, self.small.seed
        place = method(topology, "graph")
        for round_num in range(ROUNDS if topology.dynamic else 1):
            graph = topology.graph(count, round_num, seed)
            if not isinstance(graph, nx.Graph):
                yield f"{place} returns {kind_of(graph)}, expected an undirected networkx.Graph"
                return
            wrong = misdrawn(graph)
            if wrong:
                yield f"{place} {wrong}"
                return
            if set(graph) != set(range(count)):
                shown = ", ".join(map(str, list(graph)[:5]))
                here = f"(num_nodes is {count} in the trial)"
                yield f"{place} returns a graph of nodes {shown}, ..., expected 0..{count - 1} {here}"
                return
            if set(map(frozenset, graph.edges)) != set(map(frozenset, topology.graph(count, round_num, seed).edges)):
                yield f"{place} returns another graph for the same round and seed; draw from the seed alone"

    def calls(self) -> Iterator[str]:
        """Parts that the simulation without learning does not call."""
        for key, part in named_parts(self.scenario):
            if key in CALLS and _table(key).about(part) is not None:
                yield from CALLS[key](part, self.scenario, self.outline)

    def data(self) -> Iterator[str]:
        """A data set, partition or shift: the samples are loaded and dealt."""
        from ddlsim.data.dataset import Dataset

        keys = {"data", "partition", "shift"} & self.outside.keys()
        if not keys:
            return
        real = self.small.model_copy(update={"learning": "real"})
        try:
            loaded = load_data(real, download=False)
        except DataMissing as error:
            self.tell(f"The data is not here, so {', '.join(sorted(keys))} could not be tried: {error}")
            return
        data = self.outside.get("data")
        if data is not None:
            place = method(data, "generate" if data.generated else "load")
            if not isinstance(loaded.dataset, Dataset):
                yield f"{place} returns {kind_of(loaded.dataset)}, expected a ddlsim.data.Dataset"
                return
            yield from (f"{place} {text}" for text in _contradictions(data, loaded.dataset))
        prepare(Loaded(real, loaded.dataset))

    def model(self) -> Iterator[str]:
        """A model: it is built with values, cut into core and head, and given samples; a task: it is tried on one."""
        import torch

        from ddlsim.assembly import builders_of
        from ddlsim.learning.architecture import FEW, read_architecture

        model, outline = self.small.model, self.outline
        if not {"model", "task"} & self.outside.keys() or model.only_size or outline is None:
            return
        model.check(outline.image_shape)
        samples = torch.zeros(FEW, *outline.image_shape, dtype=getattr(torch, outline.dtype))
        task = as_task(outline.task)
        labels = torch.zeros(FEW, *outline.label_shape, dtype=getattr(torch, task.label_dtype))
        builders = builders_of(self.small, outline, self.tell)
        for name, build in builders.items():
            found = read_architecture(name, build, 0, model.buffers, (samples, labels), outline.num_classes, task)
            if len(builders) == 1 and found.layout.names == ("core", "head"):
                self.sizes = {part: found.layout.parts[part].size for part in found.layout.names}
        yield from ()

    # -- all together ----------------------------------------------------------------------------------------------

    def read_outline(self) -> Iterator[str]:
        """What the samples are like."""
        try:
            try:
                self.outline = load_data(self.small, download=False).dataset
            except ScenarioError:  # a rule may need the nodes of the scenario; how much they get plays no part here
                evenly = self.small.model_copy(update={"partition": Random()})
                self.outline = load_data(evenly, download=False).dataset
        except DataMissing as error:
            self.tell(f"The data is not here, so models and rounds could not be tried: {error}")
        yield from ()

    def simulation(self) -> Iterator[str]:
        """Two rounds of the smallest simulation without learning."""
        from ddlsim.assembly import build_learner, build_simulation
        from ddlsim.runs.recorder import Recorder

        if self.outline is None:
            return
        small = self.small
        if self.sizes:
            small = small.model_copy(update={"model": self._sizes_alone()})

        def build(algorithm: "Algorithm") -> "Simulation":
            trial = small.model_copy(update={"algorithm": algorithm})
            learner = build_learner(trial, self.outline, "none")
            return build_simulation(trial, self.outline, learner, Recorder())

        algorithm = small.algorithm
        if "algorithm" in self.outside:
            found = list(_first_calls(build(algorithm)))
            if found:
                yield from found
                return
            algorithm = _watched(algorithm)
        simulation = build(algorithm)
        simulation.run()
        if "algorithm" in self.outside:
            yield from _servings(simulation, self.small.algorithm, self.small.validation.source)
            self._run_whole()

    def _run_whole(self) -> None:
        """Two rounds with all nodes of the scenario: in a small graph every node may be a neighbor of every other."""
        from ddlsim.assembly import build_learner, build_simulation
        from ddlsim.runs.recorder import Recorder

        count = self.scenario.nodes.count
        if count == self.small.nodes.count:
            return
        if count > MOST_WHOLE:
            self.tell(f"algorithm: tried with {self.small.nodes.count} of {count} nodes, so a deadlock may be missed.")
            return
        whole = _of_size(self.scenario, self.scenario.nodes.clusters)
        if self.sizes:
            whole = whole.model_copy(update={"model": self._sizes_alone()})
        outline = cast(
            "DatasetSpec", load_data(whole.model_copy(update={"partition": Random()}), download=False).dataset
        )
        build_simulation(whole, outline, build_learner(whole, outline, "none"), Recorder()).run()

    def _sizes_alone(self) -> Any:
        """The model's sizes in place of the model, which not every module can be built without values."""
        from ddlsim.models.only_sizes import Sizes

        assert self.sizes is not None
        return Sizes(core=self.sizes["core"], head=self.sizes["head"])


def _written_at(cls: type) -> str | None:
    """File and line of a class of the user's; None: it has none, or is of an installed package, such as torch's."""
    file = own_code.source_file(cls)
    return None if file and "site-packages" in Path(file).parts else own_code.where(cls)


def _smallest(scenario: "Scenario") -> "Scenario":
    """The scenario with few nodes, two rounds, no learning, no churn."""
    clusters = len(scenario.nodes.clusters)
    counts = range(max(2, clusters), min(MOST_NODES, scenario.nodes.count))
    for count in counts:
        small = _of_size(scenario, [count // clusters + (cluster < count % clusters) for cluster in range(clusters)])
        try:
            if not list(cross_problems(small)):
                small.topology.graph(count, 0, small.seed)
                return small
        except Exception:  # it does not work for so few nodes; the scenario's own number is tried last
            continue
    return _of_size(scenario, scenario.nodes.clusters)


def _of_size(scenario: "Scenario", clusters: Sequence[int]) -> "Scenario":
    nodes = scenario.nodes.model_copy(update={"clusters": tuple(clusters)})
    records = scenario.records.model_copy(update={"true_similarities": (), "models": None})
    changes = {"nodes": nodes, "records": records, "rounds": ROUNDS, "learning": "none", "churn": None}
    small = scenario.model_copy(update={**changes, "fallback": None, "paper": None})
    return with_first_nodes(small, scenario.nodes.count)


def _first_calls(simulation: "Simulation") -> Iterator[str]:
    """What `start` and `round` of an algorithm return, for two nodes of a simulation that does not go on."""
    algorithm = simulation.algorithm
    nodes = [member.node for member in simulation.members[:2]]
    place = method(algorithm, "start")
    states = [algorithm.start(node) for node in nodes]
    if inspect.isgenerator(states[0]):
        yield f"{place} has a yield, but takes no simulated time; expected the node's state"
        return
    if len(states) > 1 and states[0] is states[1] and not isinstance(states[0], (str, int, float, tuple, NoneType)):
        yield f"{place} returns the same object for two nodes, expected one {type(states[0]).__name__} for each"
        return
    steps = algorithm.round(nodes[0], states[0], 0)
    wrong = no_steps(steps)
    if wrong:
        yield f"{method(algorithm, 'round')} {wrong}"


def _watched(algorithm: "Algorithm") -> "Algorithm":
    """The algorithm with a look at everything that it yields."""
    from ddlsim.algorithms.base import Algorithm

    cls = type(algorithm)

    def watch(method: str) -> "Callable[..., Steps]":
        def watched(self: Any, node: Any, state: Any, round_num: int) -> "Steps":
            steps, outcome = getattr(cls, method)(self, node, state, round_num), None
            while True:
                try:
                    verb = steps.send(outcome)
                except StopIteration:
                    return
                if not _is_verb(verb):
                    raise no_verb(self, method, steps, verb)
                outcome = yield verb

        return watched

    own = [name for name in ("round", "join", "finish") if getattr(cls, name) is not getattr(Algorithm, name)]
    made = copy.copy(algorithm)
    kind = type(cls.__name__, (cls,), {"__slots__": (), **{name: watch(name) for name in own}})
    object.__setattr__(made, "__class__", kind)
    return made


def _is_verb(value: Any) -> bool:
    """Whether it is the event of an end with what makes its outcome, see node.py: Verb."""
    return isinstance(value, tuple) and len(value) == 2 and hasattr(value[0], "callbacks") and callable(value[1])


def _servings(simulation: "Simulation", algorithm: "Algorithm", validation: str) -> Iterator[str]:
    """What the nodes of a finished simulation would answer queries with.

    `validation` says where samples for it are from.
    """
    place = method(algorithm, "serving")
    sizes = {len(model) for member in simulation.members[:1] for model in member.node.init_models()}
    for member in simulation.members:
        found = algorithm.serving(member.node, member.state)
        wrong = no_candidates(found, member.node)
        if wrong:
            yield f"{place} {wrong}"
            return
        if found is None:
            continue
        if not isinstance(found.models, list | tuple) or not found.models:
            yield f"{place} returns EvaluationCandidates of {kind_of(found.models)}, expected at least one model"
            return
        if len(found.models) > 1 and found.choose == "validation_loss" and validation == "none":
            yield f"{place} chooses by validation_loss, but no samples are set aside: see the key validation"
            return
        for model in found.models:
            text = _wrong_model(model, max(sizes))
            if text:
                yield f"{place} returns EvaluationCandidates with {text}"
                return


def _wrong_model(model: Any, parts: int) -> str | None:
    from ddlsim.learning.size_learner import SizedParams

    if not isinstance(model, tuple | list):
        return f"{kind_of(model)} in the place of a model, expected a tuple of its parts, such as (state.model,)"
    wrong = [part for part in model if not isinstance(part, SizedParams)]
    if wrong or len(model) not in (1, parts):
        shown = f"({', '.join(kind_of(part) for part in model)})"
        return f"a model {shown}, expected (model,) or (core, head, ...) as node.init_models and node.train give them"
    if len(model) == 1 and model[0].part.name != "model":
        return f"the part {model[0].part.name!r} alone, expected a whole model: (model,) or (core, head, ...)"
    return None


def _contradictions(data: Any, dataset: Any) -> Iterator[str]:
    """Constants of a data set's class that its arrays do not agree with."""
    if data.num_samples is None:
        return
    sizes = tuple(len(dataset.samples(split)[1]) for split in dataset.splits)
    real = {"num_samples": sizes, "image_shape": tuple(dataset.sample_shape), "num_classes": dataset.num_classes}
    for key, found in real.items():
        said = getattr(data, key)
        if said is not None and (tuple(said) if isinstance(found, tuple) else said) != found:
            yield f"returns data whose {key} is {found}, but the class says {said}"
    if data.sample_dtype != dataset.sample_dtype:
        yield f"returns samples of {dataset.sample_dtype}, but sample_dtype of the class is {data.sample_dtype}"


def _table(key: str) -> "Registry":
    from ddlsim.scenario import parts

    return parts.table(key)
