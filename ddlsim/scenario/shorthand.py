"""Short ways to write the optimizer and the learning-rate schedule, made into the long one before anything is merged.

`training: {optimizer: adamw, eps: 1e-6}` is `training: {optimizer: {name: adamw, eps: 1e-6}}`, and `schedule: cosine`
is `schedule: {name: cosine}`. Keys of torch's optimizers may stand beside the name, those of other classes under it.
"""

from typing import Any

from ddlsim.scenario.problems import Problem, ScenarioProblems
from ddlsim.scenario.tree import Tree

NAMED = ("optimizer", "schedule")

OPTIMIZER_KEYS = frozenset(
    {
        "adjust_lr_fn",
        "alpha",
        "amsgrad",
        "beta2_decay",
        "betas",
        "centered",
        "d",
        "dampening",
        "decoupled_weight_decay",
        "eps",
        "etas",
        "initial_accumulator_value",
        "lambd",
        "lr_decay",
        "momentum",
        "momentum_decay",
        "nesterov",
        "ns_coefficients",
        "ns_steps",
        "rho",
        "step_sizes",
        "t0",
        "weight_decay",
    }
)
"""The keys of the optimizers of torch.optim, which may stand in the section `training` itself."""

_IGNORED: dict[str, tuple[str, Any]] = {"sgd": ("betas", [0.9, 0.999]), "adam": ("momentum", 0.0)}
"""Optimizer -> a key and its default that version 0.1 wrote beside the name of either."""


def is_training(path: tuple[str, ...]) -> bool:
    """Whether the section `training` stands at this path, in the scenario or in its fallback."""
    return path in (("training",), ("fallback", "training"))


def with_long_names(training: Tree) -> Tree:
    """The section `training` in its long way; what is no mapping stays as it is."""
    if not training.is_mapping:
        return training
    found = {key: child for key, child in training.value.items() if key not in OPTIMIZER_KEYS}
    for key in NAMED:
        if key in found and isinstance(found[key].value, str):
            child = found[key]
            found[key] = Tree({"name": child}, child.mark, child.key)
    flat = {key: child for key, child in training.value.items() if key in OPTIMIZER_KEYS}
    if flat:
        optimizer = found.get("optimizer")
        if optimizer is not None and not optimizer.is_mapping:
            return training  # null or a list: told as it is
        inside = dict(optimizer.value) if optimizer is not None else {}
        for key in flat.keys() & inside.keys():
            text = f"training.optimizer.{key} is given as well; leave one of them out"
            raise ScenarioProblems([Problem(flat[key].key, f"training.{key}", text)])
        name = inside["name"].value if "name" in inside else None
        key, default = _IGNORED.get(str(name), ("", None))
        if key in flat and flat[key].plain() == default:
            del flat[key]
        mark, at = (optimizer.mark, optimizer.key) if optimizer is not None else (training.mark, training.key)
        found["optimizer"] = Tree({**inside, **flat}, mark, at)
    return Tree(found, training.mark, training.key)


def long_path(path: tuple[str, ...], given: Tree) -> tuple[str, ...]:
    """The path of a `--set` in the long way."""
    head = path[:-1]
    if is_training(head) and path[-1] in OPTIMIZER_KEYS:
        return (*head, "optimizer", path[-1])
    if is_training(head) and path[-1] in NAMED and isinstance(given.value, str):
        return (*path, "name")
    return path


def in_short(training: dict[str, Any]) -> dict[str, Any]:
    """Plain data of the section `training` with the optimizer's keys beside its name, where they may stand there."""
    optimizer = training.get("optimizer")
    if not isinstance(optimizer, dict):
        return training
    flat = {key: value for key, value in optimizer.items() if key in OPTIMIZER_KEYS}
    rest = {key: value for key, value in optimizer.items() if key not in OPTIMIZER_KEYS}
    short = {"optimizer": rest.get("name")} if set(rest) == {"name"} else {"optimizer": rest} if rest else {}
    return {**{key: value for key, value in training.items() if key != "optimizer"}, **short, **flat}


def as_version_0_1_had_it(training: dict[str, Any]) -> dict[str, Any]:
    """The section `training` with every default, as far as version 0.1 had its keys: runs keep the names that they had.

    Args:
        training: plain data of a checked scenario.
    """
    found = in_short(training)
    if found.get("optimizer") not in _IGNORED:
        return found
    found = {"momentum": 0.0, "betas": [0.9, 0.999], **found}
    extra = {"dampening": 0.0, "nesterov": False, "eps": 1e-8, "amsgrad": False, "decoupled_weight_decay": False}
    return {key: value for key, value in found.items() if key not in extra or value != extra[key]}
