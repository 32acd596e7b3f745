"""Whole models that algorithms pass to be trained, scored and tested: all of their parts, in order."""

from typing import Any

from ddlsim.foundation.errors import DdlsimError

CORE, HEAD, MODEL = "core", "head", "model"
_USUAL = {(MODEL,), (CORE, HEAD)}


def no_samples(node: int, split: str) -> DdlsimError:
    """Return the error for losses on samples of a node that has none."""
    return DdlsimError(
        f"losses: node {node} has no {split} samples. The key `validation` of a scenario sets some aside for the split "
        "validation."
    )


def no_core(name: str) -> DdlsimError:
    """Return the error for an algorithm that shares the core and the head of a model without a trained core."""
    return DdlsimError(
        f"model: {name} has no core that is trained, and this algorithm shares core and head apart. Choose a model "
        "with a core (gn_lenet, mlp, ...), or an algorithm that shares whole models (el, dpsgd)."
    )


def check_model(what: str, model: Any) -> None:
    """Raise DdlsimError unless the model is (model,) or (core, head, ...): a missing part would keep its last loaded
    values.

    Args:
        what: operation on it, for the message.
        model: handles to rows of parameters.
    """
    if not isinstance(model, tuple | list):
        got = f"a {type(model).__name__}"
        raise DdlsimError(f"{what}: expected a model as a tuple of its parts, such as (state.model,), got {got}.")
    names = tuple([getattr(getattr(params, "part", None), "name", type(params).__name__) for params in model])
    if names in _USUAL or (names[:2] == (CORE, HEAD) and MODEL not in names and len(set(names)) == len(names)):
        return
    raise DdlsimError(
        f"{what}: expected a whole model, (model,) or (core, head, ...) in this order, as node.init_models and "
        f"node.train give it, got ({', '.join(names)}{',' if len(names) == 1 else ''})."
    )
