"""Published numbers that a scenario carries under `paper`, brought to the names that our own numbers have."""

from collections.abc import Iterator

METRICS = ("accuracy_all", "fair_accuracy", "demographic_parity", "equalized_odds")


def published(scenario: dict, num_clusters: int) -> dict[str, float]:
    """The scenario's published numbers, as our metric names -> value; accuracies as fractions, 0 to 1.

    Known keys of `paper`: `accuracy` with `all`, `clusters` (a list) or `cluster_0`, `cluster_1`, ..., `majority`
    (cluster 0), `minority` (the last cluster); `fair_accuracy`; `demographic_parity`; `equalized_odds`. Accuracies are
    fractions, or percent where they are above 1. A value may also be a mapping with `mean` beside other keys. Other
    keys are left alone.
    """
    paper = scenario.get("paper") or {}
    found: dict[str, float] = {}
    for name, value in _accuracies(paper.get("accuracy"), num_clusters):
        found[name] = _fraction(value)
    for name in METRICS[1:]:
        value = _number(paper.get(name))
        if value is not None:
            found[name] = _fraction(value) if name == "fair_accuracy" else value
    return found


def source(scenario: dict) -> str:
    """Where the published numbers stand, for the reader."""
    return str((scenario.get("paper") or {}).get("source", "published"))


def _accuracies(accuracy, num_clusters: int) -> Iterator[tuple[str, float]]:
    places = {"all": "accuracy_all", "majority": "accuracy_0", "minority": f"accuracy_{num_clusters - 1}"}
    places |= {f"cluster_{cluster}": f"accuracy_{cluster}" for cluster in range(num_clusters)}
    if not isinstance(accuracy, dict):
        return
    for key, value in accuracy.items():
        if key == "clusters" and isinstance(value, list):
            yield from ((f"accuracy_{i}", number) for i, v in enumerate(value) if (number := _number(v)) is not None)
        elif key in places and (number := _number(value)) is not None:
            yield places[key], number


def _fraction(accuracy: float) -> float:
    return accuracy / 100 if accuracy > 1 else accuracy


def _number(value) -> float | None:
    value = value.get("mean") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
