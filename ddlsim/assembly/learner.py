"""Build the Compute port of a scenario: models, data and waves of all nodes."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from ddlsim.attacks.node_attacks import Attackers
from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.prepared import PreparedData
from ddlsim.devices.base import StepWork
from ddlsim.foundation.environment import num_cores
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream_seed
from ddlsim.node.ports import Compute
from ddlsim.scenario import Scenario
from ddlsim.scenario.per_node import of_node

if TYPE_CHECKING:
    from ddlsim.learning.architecture import Build
    from ddlsim.learning.layout import Layout
    from ddlsim.learning.remote.waves import RemoteWaves


def build_learner(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    device: str,
    notify: Callable[[str], None] = lambda _: None,
    threads: int | None = None,
    elsewhere: "RemoteWaves | None" = None,
    nodes: Collection[int] | None = None,
) -> Compute:
    """Build parameters, data and waves of all nodes on a device, or their sizes for a network-only run.

    Args:
        scenario: scenario of the run.
        prepared: its data.
        device: cpu or cuda.
        notify: receives a note on a model whose core and head are derived.
        threads: CPU threads of a wave; None: the number of cores.
        elsewhere: waves in other processes; None: this process computes.
        nodes: nodes whose training samples this process keeps; None for all.
    """
    model, classes = scenario.model, prepared.num_classes
    buffers, assigned = model.buffers, model.assignment(scenario.nodes.count, scenario.seed)
    builders = builders_of(scenario, prepared, notify)
    if scenario.learning == "none":
        from ddlsim.learning.size_learner import SizeLearner, parts_of, parts_of_sizes

        if model.only_size:
            parts = {type(model).__name__: parts_of_sizes(model.part_sizes())}
        else:
            parts = {name: parts_of(name, build, buffers) for name, build in builders.items()}
        _require_core(scenario, {name: own["core"].size for name, own in parts.items()})
        samples = cast("DatasetSpec", prepared).samples
        training = scenario.node_training
        latent = {name: _latent_size_of(name, build, prepared) for name, build in builders.items()}
        sized = SizeLearner(parts, classes, samples, training.batch_size, training.drop_last, assigned, latent)
        sized.step_work = _step_work(scenario, prepared, builders, sized.sizes)
        return sized
    import torch

    from ddlsim.learning.architecture import UNTRAINED
    from ddlsim.learning.learner import Learner

    if device == "cpu" and elsewhere is None:
        from ddlsim.learning.bank import keep_freed_memory

        keep_freed_memory()
    privacy = scenario.privacy
    learner = Learner(
        builders,
        cast("PreparedData", prepared),
        scenario.node_training,
        torch.device(device),
        threads=num_cores() if threads is None else threads,
        chunk=scenario.evaluation.batch_size,
        assigned=assigned,
        seed=stream_seed(scenario.seed, UNTRAINED),
        buffers=buffers,
        privacy=privacy if privacy is not None and privacy.kind == "dp_sgd" else None,
        elsewhere=elsewhere,
        attackers=attackers_of(scenario, prepared.node_cluster),
        nodes=nodes,
    )
    learner.step_work = _step_work(scenario, prepared, builders, learner.sizes)
    if privacy is not None:
        from ddlsim.foundation.accounting import need_opacus

        need_opacus()
        layouts = {name: found.layout for name, found in learner.architectures.items()}
        _require_no_statistics(layouts, scenario.algorithm_name)
    _require_core(scenario, {name: found.layout.parts["core"].size for name, found in learner.architectures.items()})
    return learner


def builders_of(
    scenario: Scenario, prepared: PreparedData | DatasetSpec, notify: Callable[[str], None] = lambda _: None
) -> "dict[str, Build]":
    """Return the builder of each architecture, a module with core, head and extra parts, by a name for messages."""
    model, algorithm = scenario.model.fitted(prepared.num_tokens, prepared.label_shape), scenario.algorithm
    if model.only_size:
        return {}
    import torch

    from ddlsim.learning.model_sizes import with_extra_parts
    from ddlsim.models.whole import with_core_and_head

    shape, dtype = prepared.image_shape, getattr(torch, prepared.dtype)
    may_be_whole = not algorithm.needs_core and not algorithm.has_extra_parts
    builders = {
        name: with_core_and_head(build, name, shape, dtype, notify, may_be_whole)
        for name, build in model.builders(shape, prepared.num_classes).items()
    }
    if algorithm.has_extra_parts:
        make = partial(algorithm.extra_parts, num_classes=prepared.num_classes)
        builders = {
            name: with_extra_parts(build, make, _latent_size_of(name, build, prepared))
            for name, build in builders.items()
        }
    return builders


def _step_work(
    scenario: Scenario, prepared: PreparedData | DatasetSpec, builders: "Mapping[str, Build]", sizes: Mapping[str, int]
) -> Callable[[], Mapping[str, StepWork]]:
    """Return a function that counts the operations of a training step of each architecture, with the batch size of node
    0, at its first call.
    """
    batch_size, shape, dtype = of_node(scenario.node_training.batch_size, 0), prepared.image_shape, prepared.dtype
    is_sequence = prepared.num_tokens is not None
    tokens = batch_size * math.prod(shape) if is_sequence else 0

    @cache
    def counted() -> Mapping[str, StepWork]:
        if not builders:
            found = {name: StepWork.of_size(size, tokens or batch_size) for name, size in sizes.items()}
        else:
            import torch

            from ddlsim.learning.model_sizes import count_step

            found = {
                name: count_step(build, shape, getattr(torch, dtype), batch_size, is_sequence, sizes[name])
                for name, build in builders.items()
            }
        return {name: replace(each, parameters=sizes[name], tokens=tokens) for name, each in found.items()}

    return counted


def _require_core(scenario: Scenario, sizes: dict[str, int]) -> None:
    """Require a trained core in every architecture if the algorithm keeps core and head apart.

    Raises:
        ScenarioError: an architecture has none.
    """
    lacking = [name for name, size in sizes.items() if not size]
    if lacking and scenario.algorithm.needs_core:
        raise ScenarioError(
            f"model: {lacking[0]} has no core that is trained, and {scenario.algorithm_name} keeps core and head "
            "apart. Choose a model with a core, or an algorithm that shares whole models (el, dpsgd, dac, ...)."
        )


def _require_no_statistics(layouts: "Mapping[str, Layout]", algorithm: str) -> None:
    """Require that no architecture and no extra part has buffers, which learn from samples and leave without noise.

    Raises:
        ScenarioError: an architecture or an extra part has.
    """
    for name, layout in layouts.items():
        holding = [part.name for part in layout.parts.values() if part.size > sum(part.trained_sizes)]
        if layout.local.size or holding:
            raise ScenarioError(
                f"privacy: {name} with {algorithm} has running statistics (BatchNorm) in {', '.join(holding) or 'it'}, "
                "which learn from samples without noise. Choose a model without them (gn_lenet, mlp, ...), or another "
                "algorithm."
            )


def _latent_size_of(name: str, build: "Build", prepared: PreparedData | DatasetSpec) -> Callable[[], int]:
    import torch

    from ddlsim.learning.model_sizes import latent_size_of

    return latent_size_of(name, build, prepared.image_shape, getattr(torch, prepared.dtype))


def attackers_of(scenario: Scenario, node_cluster: np.ndarray) -> Attackers | None:
    """Return the attackers; None if all nodes are honest."""
    if not scenario.attacks:
        return None
    return Attackers(scenario.attacks, np.asarray(node_cluster), scenario.seed)
