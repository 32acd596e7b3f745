"""Checks of the values that an algorithm returns and yields, of its verbs, and of waits that never end."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ddlsim.algorithms.base import Algorithm
from ddlsim.engine.membership import Member
from ddlsim.engine.transport import NetworkTransport
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError, kind_of, listing
from ddlsim.network.network import Network
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.node import Node, Steps, Verb


def start_steps(algorithm: Algorithm, method: str, found: Any) -> Steps:
    """Return the steps that `round`, `join` or `finish` returns.

    Raises:
        ScenarioError: the result is not a generator of steps.
    """
    if hasattr(found, "send"):
        return found
    text = f"{method} of {type(algorithm).__qualname__} returns {kind_of(found)}, expected a generator"
    raise ScenarioError(f"algorithm: {text}: `(state.model,) = yield node.train((state.model,))`.")


def no_verb(algorithm: Algorithm, method: str, steps: Steps, yielded: Any) -> ScenarioError:
    """Return the error for a step that is not a verb; it names the line."""
    frame = getattr(steps, "gi_frame", None)
    file = own_code.shown_path(frame.f_code.co_filename) if frame else "?"
    place = f"{file}:{frame.f_lineno}" if frame else "?"
    text = f"{method} of {type(algorithm).__qualname__} yields {kind_of(yielded)}, expected a verb of the node"
    return ScenarioError(f"{place}: {text} that takes simulated time, such as `yield node.receive(round_num)`")


def unused_verb(algorithm: Algorithm, method: str) -> ScenarioError:
    """Return the error for steps that end with a verb that they have not yielded; it names the line if it is found."""
    cls = type(algorithm)
    place = own_code.where(getattr(cls, method))
    found = next(forgotten_yields(cls), f"{f'{place}: ' if place else ''}{method} of {cls.__qualname__} ends")
    text = "A verb of the node was not yielded, so that nothing waits for its end"
    return ScenarioError(f"{found}. {text} and its outcome is lost.")


def stuck_text(now_s: float, members: Sequence[Member], transport: NetworkTransport, network: Network) -> str:
    """Return the error for a run in which nothing can happen any more; it names a wait that never ends."""
    if not any(member.online for member in members if not member.is_server):
        return (
            "churn: all nodes have left permanently before the end of the run. Use a longer trace, a smaller "
            "time_scale or fewer rounds."
        )
    waits = [
        f"node {one.id} waits for {what} of round {round_num} from {listing(senders)}"
        for one in members
        if not one.finished
        for what, round_num, senders in transport.waiting_for(one.id)
    ]
    first = waits[0] if waits else "nodes wait for events that never happen"
    return (
        f"at {now_s:.3f} simulated seconds nothing can happen any more: {first} (open waits: {len(waits)}), "
        f"and {network.num_sending} messages are on links without capacity, or with too little for centuries. "
        "Send a message to every node that waits for one (it may be empty), name the senders as in "
        "node.receive(round_num, senders), give links more capacity, or set protocol.deadline_s or mode: async."
    )


def candidates(algorithm: Algorithm, node: Node, state: Any) -> EvaluationCandidates | None:
    """Return the models that a node would answer queries with; None if it is a server.

    Raises:
        ScenarioError: `serving` returns another type.
    """
    found = algorithm.serving(node, state)
    if isinstance(found, EvaluationCandidates) or (found is None and node.is_server):
        return found
    text = f"serving of {type(algorithm).__qualname__} returns {kind_of(found)}"
    raise ScenarioError(f"algorithm: {text}, expected ddlsim.node.candidates.EvaluationCandidates(models).")


def forgotten_yields(cls: type) -> Iterator[str]:
    """Return a sentence per call such as `node.train(...)` in `round`, `join` or `finish` whose verb is used as its
    outcome.

    Only calls that cannot be right are reported: those whose value is discarded, unpacked or iterated over.
    """
    for name in ("round", "join", "finish"):
        method = getattr(cls, name)
        if not method.__module__.startswith("ddlsim."):
            yield from _in_method(method)


def _in_method(method: Callable) -> Iterator[str]:
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        file = own_code.shown_path(inspect.getsourcefile(method))
    except (OSError, TypeError, SyntaxError):
        return
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) < 2:
        return
    node = function.args.args[1].arg
    for found in ast.walk(function):
        value = _used_as_outcome(found)
        verb = _verb(value, node)
        if value is not None and verb:
            place = f"{file}:{first + value.lineno - 1}"
            yield f"{place}: {node}.{verb}(...) takes simulated time; write `yield {node}.{verb}(...)` for its outcome"


def _used_as_outcome(found: ast.AST) -> ast.expr | None:
    """Return the expression of a statement that discards, unpacks or iterates over its value."""
    if isinstance(found, ast.Expr) or (
        isinstance(found, ast.Assign) and isinstance(found.targets[0], ast.Tuple | ast.List)
    ):
        return found.value
    return found.iter if isinstance(found, ast.For | ast.comprehension) else None


def _verb(value: ast.expr | None, node: str) -> str | None:
    """Return the verb that is called of a node, if it is one."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    owner, name = value.func.value, value.func.attr
    returned = getattr(getattr(Node, name, None), "__annotations__", {}).get("return")
    return name if isinstance(owner, ast.Name) and owner.id == node and returned == Verb else None
