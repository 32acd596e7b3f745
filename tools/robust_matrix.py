"""Run the matrix of algorithms, attacks and aggregation rules, cell by cell, and store each cell's
figures.

    python tools/robust_matrix.py docs/results/robust/cells.jsonl [until HH:MM]

    python tools/robust_matrix.py docs/results/robust/concepts.jsonl concepts

Stored cells are not repeated. Cells are ordered by importance: first all rules without attackers, then
the attacks. `concepts`: the minority's labels are shifted by one instead of rotating its images, so that the
heads of FACADE separate; without attackers. `tools/robust_page.py` writes the page from the files.
"""

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SCENARIO = ROOT / "scenarios" / "robust.yaml"

ALGORITHMS: dict[str, dict[str, Any]] = {
    "facade": {"name": "facade", "heads": 2, "warmup_rounds": 2, "variant": "code"},
    "el": {"name": "el", "fanout": 6},
    "dpsgd": {"name": "dpsgd"},
    "dac": {"name": "dac", "sampled_peers": 6},
}
RULES: dict[str, dict[str, Any]] = {
    "mean": {"name": "mean"},
    "trimmed_mean": {"name": "trimmed_mean", "trim": 0.3},
    "median": {"name": "median"},
    "multi_krum": {"name": "multi_krum", "byzantine": 0.3},
    "geometric_median": {"name": "geometric_median"},
    "clipped_gossip": {"name": "clipped_gossip", "byzantine": 0.3},
    "nearest_neighbor_mixing": {"name": "nearest_neighbor_mixing", "byzantine": 0.3},
    "cosine_clipping": {"name": "cosine_clipping"},
}
ATTACKS: dict[str, dict[str, Any]] = {
    "sign_flip": {"name": "sign_flip", "scale": 3.0},
    "alie": {"name": "alie", "z": 1.5, "knowledge": "all"},
}
SHARES = (0.2, 0.1)


def cells() -> Iterator[dict[str, Any]]:
    """Return every cell by its keys."""
    for seed in (0, 1):
        for rule, algorithm in itertools.product(RULES, ALGORITHMS):
            yield {"algorithm": algorithm, "rule": rule, "attack": None, "share": 0.0, "seed": seed}
    for attack, share in ((attack, share) for share in SHARES for attack in ATTACKS):
        for rule, algorithm in itertools.product(RULES, ALGORITHMS):
            yield {"algorithm": algorithm, "rule": rule, "attack": attack, "share": share, "seed": 0}


def concepts() -> Iterator[dict[str, Any]]:
    """Return cells of a minority with other labels."""
    for seed, rule, algorithm in itertools.product((0, 1), RULES, ("facade", "el")):
        yield {"algorithm": algorithm, "rule": rule, "attack": None, "share": 0.0, "seed": seed, "shift": "label_shift"}


def changes(cell: dict[str, Any]) -> dict[str, Any]:
    """Return the changes of the scenario by a cell."""
    found = {"algorithm": ALGORITHMS[cell["algorithm"]], "aggregation": RULES[cell["rule"]], "seed": cell["seed"]}
    if cell["algorithm"] == "dpsgd":
        found["init"] = "shared"  # the others start from different models, as the pages' runs did
    if "shift" in cell:
        found["shift"] = {"name": cell["shift"]}
    if cell["attack"] is not None:
        found["attacks"] = [{**ATTACKS[cell["attack"]], "nodes": cell["share"]}]
    return found


def figures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the stored figures of a run: of the honest nodes, or of all if all are honest."""
    of = summary.get("honest") or summary
    return {
        "accuracy": of["accuracy"]["all"],
        "clusters": of["accuracy"]["clusters"],
        "fair_accuracy": of["fair_accuracy"],
        "gigabytes": summary["bytes"]["total"] / 1e9,
        "simulated_s": summary["sim_time_s"],
    }


def main() -> None:
    """Run missing cells."""
    import torch

    import ddlsim
    from ddlsim.foundation.strict_json import table_text

    torch.set_num_threads(1)
    path, until = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 and ":" in sys.argv[2] else "99:99"
    wanted = concepts() if "concepts" in sys.argv else cells()
    lines = path.read_text().splitlines() if path.exists() else []
    known = [json.loads(line)["cell"] for line in lines]
    for cell in wanted:
        if cell in known:
            continue
        if time.strftime("%H:%M") >= until:
            return
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            run = ddlsim.run(SCENARIO, set=changes(cell), out=f"{folder}/run", progress=None)
            row = {"cell": cell, **figures(run.summary), "cpu_s": round(time.process_time() - start, 2)}
            if cell["algorithm"] == "facade":
                row["heads_apart"] = run.summary["settlement"]["apart"]
        with path.open("a") as file:
            file.write(table_text(row) + "\n")


if __name__ == "__main__":
    main()
