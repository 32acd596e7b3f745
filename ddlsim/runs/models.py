"""The models of a run in one file, models.safetensors.

The name of a tensor is `<node>/<name in state_dict()>`. Of equal tensors (a model that all nodes share after an
all-reduce, frozen parameters) only the first is written; the metadata entry `ddlsim` has, as JSON, the names of the
others (`same`), and the parts that an algorithm trained in addition to the model (`extra_parts`).
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.foundation.rng import stream_seed
from ddlsim.foundation.strict_json import table_text
from ddlsim.node.candidates import Snapshot
from ddlsim.report.figures import written_below
from ddlsim.report.reading import check_run
from ddlsim.runs.directory import read_json, write_whole
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

MODELS = "models.safetensors"
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
    """Write models.safetensors.

    Raises:
        OSError: if it cannot be written.
    """
    from safetensors.torch import save

    tensors: dict[str, torch.Tensor] = {}
    same: dict[str, str] = {}
    first: dict[tuple, str] = {}
    for node, (model, local_state) in sorted(models.by_node.items()):
        for name, values in _state(learner, node, model, local_state).items():
            own = f"{node}/{name}"
            digest = hashlib.blake2b(values.numpy().tobytes(), digest_size=16).digest()
            written = first.setdefault((values.dtype, tuple(values.shape), digest), own)
            if written == own:
                tensors[own] = values
            else:
                same[own] = written
    extra = {part for node in models.by_node for part in learner.architecture_of(node).layout.names} - {"core", "head"}
    about = {"which": models.which, "extra_parts": sorted(extra), "same": same}
    write_whole(directory / MODELS, save(tensors, {"ddlsim": table_text(about, separators=(",", ":"))}))


def read_model(directory: Path, node: int, with_extra_parts: bool = False) -> "dict[str, torch.Tensor]":
    """Read the `state_dict()` of a node's model.

    Args:
        directory: of the run.
        node: its number.
        with_extra_parts: also parts that an algorithm trained in addition, such as MAPL's projection.
    Raises:
        ScenarioError: if the run stored no models, or none of this node.
        RecordsDamaged: if the file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    path = directory / MODELS
    if not path.is_file():
        check_run(directory)
        raise ScenarioError(f"{directory}: has no {MODELS}: {_why_none(directory)}.")
    prefix = f"{node}/"
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["ddlsim"])
            same: Mapping[str, str] = about["same"]
            names = [name for name in (*file.keys(), *same) if name.startswith(prefix)]
            found = {name.removeprefix(prefix): file.get_tensor(same.get(name, name)).clone() for name in sorted(names)}
            nodes = sorted({int(name.partition("/")[0]) for name in (*file.keys(), *same)})
            extra = tuple(f"{part}." for part in about["extra_parts"])
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {type(error).__name__}: {error}.") from error
    if not found:
        shown = f"{nodes[0]} to {nodes[-1]}" if len(nodes) > 10 else ", ".join(map(str, nodes))
        raise ScenarioError(f"{path}: expected one of the nodes {shown}, got {node}.")
    return {name: values for name, values in found.items() if with_extra_parts or not name.startswith(extra)}


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


def export_model(directory: Path, node: int, out: Path, with_extra_parts: bool = False) -> tuple[int, str]:
    """Write a node's model to a file, for `module.load_state_dict(safetensors.torch.load_file(out))`.

    Returns:
        The number of tensors, and a description of the inputs, which the metadata has too.
    Raises:
        DdlsimError: see `read_model`; or if the file cannot be written.
    """
    from safetensors.torch import save

    tensors, inputs = read_model(directory, node, with_extra_parts), inputs_of(directory)
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
        workspace.load(known[: len(model)])
        workspace.load_local(known[-1] if local else None)
        own_name = getattr(workspace.module, "own_name", str)  # of a module that ddlsim has cut in two
        return {own_name(name): each.detach().cpu().clone() for name, each in workspace.module.state_dict().items()}


def _why_none(directory: Path) -> str:
    reason = read_json(directory / "manifest.json").get("models", "none: the run has not ended")
    return reason if reason.startswith("none") else "no evaluation took place"
