"""The models of a run, in files models-<first node>.safetensors of whole nodes, and their index.

The index has the form of Hugging Face's `model.safetensors.index.json`: `weight_map` has the file of each tensor, whose
name is `<node>/<name in state_dict()>`. Of equal tensors (a model that all nodes share after an all-reduce, frozen
parameters) only the first is written; `metadata` has the names of the others (`same`), and the parts that an algorithm
trained in addition to the model (`extra_parts`).
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.foundation.rng import stream_seed
from ddlsim.foundation.strict_json import table_text, write_whole
from ddlsim.node.candidates import Snapshot
from ddlsim.report.figures import written_below
from ddlsim.report.reading import check_run
from ddlsim.runs.directory import read_json
from ddlsim.runs.manifest import MODEL_SEES, read_manifest
from ddlsim.runs.preprocessing import inputs_of, metadata, sentence
from ddlsim.scenario import Scenario, parts
from ddlsim.scenario.load import finish, load, read_tree
from ddlsim.scenario.tree import ScenarioProblems, from_plain

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ddlsim.learning.job_types import Model
    from ddlsim.learning.learner import Learner

MODELS = "models.safetensors.index.json"
PIECE_BYTES = 64_000_000
"""A file takes no further node from this size on, so that writing never holds more than this and one node's model."""
MAY_NAME_FILES = ("partition", "topology", "network", "devices", "churn", "fallback")
"""Sections that may name files and do not influence a model."""
MOST_BYTES = 256_000_000
"""Largest size of the models of all nodes that are kept by default."""


@dataclass
class StoredModels:
    """The models of evaluated nodes.

    Args:
        which: last: the model of the last evaluation; best: the node's best by validation loss, if it has one.
        by_node: node -> its model and its local state in the learner.
    """

    which: Literal["last", "best"]
    by_node: "dict[int, tuple[Model, Any]]" = field(default_factory=dict)

    def take(self, node: int, snapshot: Snapshot, tested: "Model", local_state: Any) -> None:
        """Keep a model of a node that was evaluated."""
        if self.which == "best" and snapshot.best is not None:
            tested, local_state = snapshot.best, snapshot.best_local_state
        self.by_node[node] = tested, local_state and replace(local_state, moments={}, unfinished=None, loss=None)


def which_models(scenario: Scenario, learner: "Learner") -> tuple[Literal["none", "last", "best"], str]:
    """Return the models that a run keeps, with a sentence for the manifest."""
    if scenario.learning == "none":
        return "none", "none: nothing is learned"
    asked = scenario.records.models
    if asked is not None:
        return asked, f"{asked}: as records.models says"
    nodes = range(scenario.nodes.count)
    num_bytes = 4 * sum(learner.architecture_of(node).layout.size for node in nodes)
    if num_bytes <= MOST_BYTES:
        return "last", f"last: together {num_bytes / 1e6:.3g} MB, which is not above {MOST_BYTES // 10**6} MB"
    return "none", f"none: {num_bytes / 1e6:.3g} MB are above {MOST_BYTES // 10**6} MB; records.models: last keeps them"


def write_models(directory: Path, models: StoredModels, learner: "Learner") -> None:
    """Write the models file by file, and then their index.

    Raises:
        OSError: if they cannot be written.
    """
    from safetensors.torch import save

    same: dict[str, str] = {}
    files: dict[str, str] = {}
    for tensors in _pieces(models, learner, same):
        file = f"models-{next(iter(tensors)).partition('/')[0]}.safetensors"
        files |= dict.fromkeys(tensors, file)
        write_whole(directory / file, save(tensors))
    extra = {part for node in models.by_node for part in learner.architecture_of(node).layout.names} - {"core", "head"}
    about = {"which": models.which, "extra_parts": sorted(extra), "same": same}
    index = table_text({"metadata": about, "weight_map": files}, separators=(",", ":"))
    write_whole(directory / MODELS, index.encode())


def _pieces(models: StoredModels, learner: "Learner", same: dict[str, str]) -> "Iterator[dict[str, torch.Tensor]]":
    """Return the tensors of each file, which the next one replaces, and fill in the names of equal tensors."""
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    first: dict[bytes, str] = {}  # by the digest of type, shape and values
    for node, (model, local_state) in sorted(models.by_node.items()):
        state = {f"{node}/{name}": values for name, values in _state(learner, node, model, local_state).items()}
        names = {own: first.setdefault(blake2b(save({"": values})).digest(), own) for own, values in state.items()}
        same |= {own: written for own, written in names.items() if written != own}
        tensors |= {own: state[own] for own, written in names.items() if written == own}
        del state
        if sum(values.nbytes for values in tensors.values()) >= PIECE_BYTES:
            yield tensors
            tensors.clear()
    if tensors:
        yield tensors


def read_model(directory: Path, node: int) -> "dict[str, torch.Tensor]":
    """Read the `state_dict()` of a node's model, without parts that an algorithm added, such as MAPL's projection.

    Args:
        directory: of the run.
        node: its number.
    Raises:
        ScenarioError: if the run stored no models, or none of this node.
        RecordsDamaged: if a file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    path = directory / MODELS
    if not path.is_file():
        check_run(directory)
        raise ScenarioError(f"{directory}: has no {MODELS}: {_why_none(directory)}.")
    prefix = f"{node}/"
    try:
        index = json.loads(path.read_text())
        files, same = index["weight_map"], index["metadata"]["same"]
        names = {name: same.get(name, name) for name in sorted((*files, *same)) if name.startswith(prefix)}
        used = {files[written] for written in names.values()}
        opened = {file: safe_open(directory / Path(file).name, "pt") for file in used}
        found = {
            name.removeprefix(prefix): opened[files[written]].get_tensor(written).clone()
            for name, written in names.items()
        }
        nodes = sorted({int(name.partition("/")[0]) for name in (*files, *same)})
        extra = tuple(f"{part}." for part in index["metadata"]["extra_parts"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {type(error).__name__}: {error}.") from error
    if not found:
        shown = f"{nodes[0]} to {nodes[-1]}" if len(nodes) > 10 else ", ".join(map(str, nodes))
        raise ScenarioError(f"{path}: expected one of the nodes {shown}, got {node}.")
    return {name: values for name, values in found.items() if not name.startswith(extra)}


def model_of(directory: Path, node: int) -> "nn.Module":
    """Build the module of a node with the values that the run stored, on the CPU, in evaluation mode.

    Args:
        directory: of the run.
        node: its number.
    Raises:
        ScenarioError, RecordsDamaged: see `read_model`; also if the values do not fit the module.
    """
    from ddlsim.learning.architecture import UNTRAINED, draw

    values, scenario = read_model(directory, node), scenario_of_models(directory)
    _warn_of_other_code(directory, scenario)
    seen = read_manifest(directory)["model_sees"]
    image_shape, num_classes, num_tokens, label_shape = (
        tuple(seen[key]) if isinstance(seen[key], list) else seen[key] for key in MODEL_SEES
    )
    builders = scenario.model.fitted(num_tokens, label_shape).builders(image_shape, num_classes)
    assigned = scenario.model.assignment(scenario.nodes.count, scenario.seed)
    build = builders[assigned[node] if assigned else next(iter(builders))]
    (module,) = draw(build, stream_seed(scenario.seed, UNTRAINED))  # sets the values that are in no state_dict()
    try:
        module.float().load_state_dict(values)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise ScenarioError(
            f"{directory / MODELS}: the values of node {node} do not fit the module that its scenario builds now: "
            f"{text:.300}. Restore the model's code; `ddlsim export` writes the values unchanged."
        ) from error
    return module.eval()


def scenario_of_models(directory: Path) -> Scenario:
    """Load the scenario of a run; without sections that do not influence models, if files of them are missing."""
    file = directory / "scenario.yaml"
    try:
        return load(file)
    except ScenarioProblems as error:
        tree = read_tree(file)
        for key in MAY_NAME_FILES:
            tree.value.pop(key, None)
        tree.value["topology"] = from_plain({"name": "complete"}, tree.mark)
        try:
            return finish(tree, file.stem)
        except ScenarioProblems:
            raise error from None


def _warn_of_other_code(directory: Path, scenario: Scenario) -> None:
    """Warn if the code of the model has changed, because the values may then predict something else."""
    now = parts.table("model").about(scenario.model) or {}
    for then in read_manifest(directory).get("plugins") or ():
        before, after = then.get("sha256"), now.get("sha256")
        same = (then.get("kind"), then.get("name")) == ("model", now.get("name"))
        if same and before and after and before != after:
            warnings.warn(
                f"{directory}: the code of the model {now['name']} has changed since the run (SHA-256 {before:.12} "
                f"then, {after:.12} now), so that the stored values may predict something else than in the run.",
                stacklevel=3,
            )


def export_model(directory: Path, node: int, out: Path) -> tuple[int, str]:
    """Write a node's model to a file, for `module.load_state_dict(safetensors.torch.load_file(out))`.

    Returns:
        The number of tensors, and a description of the inputs, which the metadata has too.
    Raises:
        DdlsimError: see `read_model`; or if the file cannot be written.
    """
    from safetensors.torch import save

    tensors, inputs = read_model(directory, node), inputs_of(directory)
    with written_below(out.parent, "--out"):
        write_whole(out, save(tensors, metadata(inputs)))
    return len(tensors), sentence(inputs)


def _state(learner: "Learner", node: int, model: "Model", local_state: Any) -> "dict[str, torch.Tensor]":
    """Return the `state_dict()` of a node's module, on the CPU, with frozen parameters and the node's buffers."""
    import torch

    from ddlsim.learning.backends.workspace import ModelWorkspace
    from ddlsim.learning.bank import RowValues

    local = [] if local_state is None or local_state.local is None else [local_state.local]
    learner.jobs.force_params([*model, *local])
    rows = [params.row for params in (*model, *local)]
    known = [RowValues(row.part, values) for row, values in zip(rows, learner.rows.gather(rows), strict=True)]
    architecture = learner.architecture_of(node)
    workspace = ModelWorkspace(architecture, torch.device("cpu"))
    with torch.no_grad():
        workspace.load(known[: len(model)], known[-1] if local else None)
        own_name = getattr(workspace.module, "own_name", str)  # of a module that ddlsim has cut in two
        return {own_name(name): each.detach().cpu().clone() for name, each in workspace.module.state_dict().items()}


def _why_none(directory: Path) -> str:
    reason = read_json(directory / "manifest.json").get("models", "none: the run has not ended")
    return reason if reason.startswith("none") else "no evaluation took place"
