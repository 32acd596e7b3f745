"""Write docs/defaults.md: every default that can change a published number, with its reason from the code.

python docs/_ext/defaults_page.py
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddlsim.algorithms import ALGORITHMS
from ddlsim.scenario import model, parts, sections
from ddlsim.scenario.network_sections import Network
from ddlsim.scenario.sections import Section

PAGE = Path(__file__).parents[1] / "defaults.md"
SECTIONS: dict[str, type[Section]] = {
    "": model.Scenario,
    "nodes": sections.Nodes,
    "training": sections.Training,
    "validation": sections.Validation,
    "evaluation": sections.Evaluation,
    "protocol": sections.Protocol,
    "network": Network,
}
NO_RESULT = {"description", "paper", "compute_device", "energy", "fallback", "evaluation.batch_size"}
"""Keys with a default that change no result: texts, and where and how it is computed."""

HEAD = """# Defaults and their reasons

Generated from the code by `docs/_ext/defaults_page.py`; do not edit. The page lists every default that can change a
published number. Defaults are the same for all algorithms: equal initial models, no final exchange, one graph for all
rounds, and no choice by test data. What the code of a paper does differently is in the scenarios of that paper
(`scenarios/base`, `scenarios/paper`), and reports mark it *as published*. [Keys of a scenario](reference/scenario.md)
explains every key.
"""
OF_ALGORITHMS = """
## Options of algorithms

They are parts of the algorithm. `variant` says which publication or code is followed where these differ, and `null`
stands for the value of the variant.

| algorithm | option | default | reason |
|---|---|---|---|
"""


def page() -> str:
    """Return the page's text."""
    text = HEAD + "\n## Keys\n\n| key | default | reason |\n|---|---|---|\n" + "\n".join(_keys())
    text += "\n\n## Parts that need not be named\n\n| part | default | reason |\n|---|---|---|\n" + "\n".join(_parts())
    return f"{text}\n{OF_ALGORITHMS}" + "\n".join(_algorithms()) + "\n"


def _keys() -> Iterator[str]:
    for section, cls in SECTIONS.items():
        for key, field in cls.model_fields.items():
            path = f"{section}.{key}".lstrip(".")
            if not field.is_required() and path not in NO_RESULT:
                yield f"| `{path}` | {_code(field.default)} | {field.description} |"


def _parts() -> Iterator[str]:
    for path, reason in model.WHY.items():
        given: Any = model.DEFAULTS
        for key in path.split("."):
            given = given[key]
        yield f"| `{path}` | {_code(given)} | {reason} |"
        cls = parts.table(path.rpartition(".")[2])[given["name"]]
        for field in parts.keys_of(cls):
            if field.name in cls.why:
                yield f"| `{path}.{field.name}` | {_code(parts.default_of(field))} | {cls.why[field.name]} |"


def _algorithms() -> Iterator[str]:
    for name in ALGORITHMS:
        cls = ALGORITHMS[name]
        why = {key: reason for base in reversed(cls.__mro__) for key, reason in vars(base).get("why", {}).items()}
        docs = parts.key_docs(cls)
        for field in parts.keys_of(cls):
            reason = why.get(field.name, docs.get(field.name, "")).replace("|", "\\|")
            yield f"| {name} | `{field.name}` | {_code(parts.default_of(field))} | {reason} |"


def _code(value: Any) -> str:
    return f"`{json.dumps(parts.plain(value))}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
