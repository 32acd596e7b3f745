"""Checks of the values that an algorithm returns and yields."""

from typing import TYPE_CHECKING, Any

from ddlsim.engine.forgotten_yields import forgotten_yields
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from ddlsim.algorithms.base import Algorithm
    from ddlsim.node.node import Node, Steps


def no_steps(found: Any) -> str:
    """Return the reason why the result of `round`, `join` or `finish` is not a generator of steps; empty if it is."""
    if hasattr(found, "send"):
        return ""
    return (
        f"returns {kind_of(found)}, expected a generator: yield what takes simulated time, such as "
        "`(state.model,) = yield node.train((state.model,))`"
    )


def no_candidates(found: Any, node: "Node") -> str:
    """Return the reason why a node cannot answer queries with the result of `serving`; empty if it can, or is a server
    that has none.
    """
    if isinstance(found, EvaluationCandidates) or (found is None and node.is_server):
        return ""
    return f"returns {kind_of(found)}, expected ddlsim.node.candidates.EvaluationCandidates(models)"


def begun(algorithm: "Algorithm", method: str, found: Any) -> "Steps":
    """Return the steps that `round`, `join` or `finish` returns.

    Raises:
        ScenarioError: the result is not a generator of steps.
    """
    wrong = no_steps(found)
    if wrong:
        raise ScenarioError(f"algorithm: {method} of {type(algorithm).__qualname__} {wrong}.")
    steps: Steps = found
    return steps


def no_verb(algorithm: "Algorithm", method: str, steps: "Steps", yielded: Any) -> ScenarioError:
    """Return the error for a step that is not a verb; it names the line."""
    frame = getattr(steps, "gi_frame", None)
    file = own_code.shown_path(frame.f_code.co_filename) if frame else "?"
    return ScenarioError(
        f"{f'{file}:{frame.f_lineno}' if frame else '?'}: {method} of {type(algorithm).__qualname__} yields "
        f"{kind_of(yielded)}, expected a verb of the node that takes simulated time, such as "
        "`yield node.receive(round_num)`"
    )


def unused_verb(algorithm: "Algorithm", method: str) -> ScenarioError:
    """Return the error for steps that end with a verb that they have not yielded; it names the line if it is found."""
    cls = type(algorithm)
    place = own_code.where(getattr(cls, method))
    found = next(forgotten_yields(cls), f"{f'{place}: ' if place else ''}{method} of {cls.__qualname__} ends")
    return ScenarioError(
        f"{found}. A verb of the node was not yielded, so that nothing waits for its end and its outcome is lost."
    )


def candidates(algorithm: "Algorithm", node: "Node", state: Any) -> EvaluationCandidates | None:
    """Return the models that a node would answer queries with; None if it is a server.

    Raises:
        ScenarioError: `serving` returns another type.
    """
    found = algorithm.serving(node, state)
    wrong = no_candidates(found, node)
    if wrong:
        raise ScenarioError(f"algorithm: serving of {type(algorithm).__qualname__} {wrong}.")
    return found
