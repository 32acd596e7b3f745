"""Published numbers that a scenario carries under `paper`, brought to the names that our own numbers have."""

from collections.abc import Iterator

from ddlsim.tasks.metric import KNOWN

METRICS = ("fair_accuracy", "demographic_parity", "equalized_odds")


def published(scenario: dict, num_clusters: int) -> dict[str, float]:
    """The scenario's published numbers, as our metric names -> value; accuracies as fractions, 0 to 1.

    Known keys of `paper`: `accuracy` with `all`, `clusters` (a list) or `cluster_0`, `cluster_1`, ..., `majority`
    (cluster 0), `minority` (the last cluster); other metrics (`mse`, `perplexity`, ...) likewise; `fair_accuracy`;
    `demographic_parity`; `equalized_odds`. Accuracies are fractions, or percent where they are above 1. A value may
    also be a mapping with `mean` beside other keys. Other keys are left alone.
    """
    paper = scenario.get("paper") or {}
    found: dict[str, float] = {}
    for metric in KNOWN.values():
        for name, value in _over(paper.get(metric.name), metric.name, num_clusters):
            found[name] = _fraction(value) if metric.share else value
    for name in METRICS:
        value = _number(paper.get(name))
        if value is not None:
            found[name] = _fraction(value) if name == "fair_accuracy" else value
    return found


def source(scenario: dict) -> str:
    """Where the published numbers stand, for the reader."""
    return str((scenario.get("paper") or {}).get("source", "published"))


def _over(values, metric: str, num_clusters: int) -> Iterator[tuple[str, float]]:
    places = {"all": f"{metric}_all", "majority": f"{metric}_0", "minority": f"{metric}_{num_clusters - 1}"}
    places |= {f"cluster_{cluster}": f"{metric}_{cluster}" for cluster in range(num_clusters)}
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        if key == "clusters" and isinstance(value, list):
            yield from ((f"{metric}_{i}", number) for i, v in enumerate(value) if (number := _number(v)) is not None)
        elif key in places and (number := _number(value)) is not None:
            yield places[key], number


def _fraction(share: float) -> float:
    return share / 100 if share > 1 else share


def _number(value) -> float | None:
    value = value.get("mean") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
