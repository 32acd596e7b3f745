"""Published numbers under `paper` in a scenario, by the names of ddlsim's numbers."""

from typing import Any

from ddlsim.report.summary import FAIRNESS
from ddlsim.tasks.base import KNOWN


def published(scenario: dict) -> dict[str, float]:
    """Return the scenario's published numbers, as ddlsim's metric names -> value.

    Known keys of `paper`: `accuracy` with `all` and `clusters` (a list); other metrics (`mse`, `perplexity`, ...)
    likewise; `fair_accuracy`; `demographic_parity`; `equalized_odds`. Accuracies are fractions, or percent if they
    are above 1. A value may also be a mapping with `mean` and other keys. Unknown keys are ignored.
    """
    paper = scenario.get("paper") or {}
    found: dict[str, float | None] = {}
    for metric in KNOWN.values():
        values = paper.get(metric.name)
        if isinstance(values, dict):
            numbers = [("all", values.get("all")), *enumerate(values.get("clusters") or [])]
            found |= {f"{metric.name}_{place}": _mean(value, metric.share) for place, value in numbers}
    found |= {name: _mean(paper.get(name), name == "fair_accuracy") for name in FAIRNESS}
    return {name: value for name, value in found.items() if value is not None}


def _mean(value: Any, share: bool) -> float | None:
    """Return a published number, or the mean in a mapping; percent of a share become a fraction."""
    value = value.get("mean") if isinstance(value, dict) else value
    if not isinstance(value, int | float):
        return None
    return value / 100 if share and value > 1 else float(value)
