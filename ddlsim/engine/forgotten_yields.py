"""Check of an algorithm's source for a node's verbs, which take simulated time, that are not yielded."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator

from ddlsim.foundation import own_code


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
    if isinstance(found, ast.Expr):
        return found.value
    if isinstance(found, ast.Assign) and isinstance(found.targets[0], ast.Tuple | ast.List):
        return found.value
    if isinstance(found, ast.For | ast.comprehension):
        return found.iter
    return None


def _verb(value: ast.expr | None, node: str) -> str | None:
    from ddlsim.node.node import Node, Verb

    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    owner, name = value.func.value, value.func.attr
    if not isinstance(owner, ast.Name) or owner.id != node:
        return None
    returned = getattr(getattr(Node, name, None), "__annotations__", {}).get("return")
    return name if returned == Verb else None
