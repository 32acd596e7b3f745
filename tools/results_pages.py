"""Write docs/results/README.md and the page of every table from the stored results in that folder."""

import sys
from pathlib import Path

from ddlsim.runs.reproduce import write_pages
from ddlsim.scenario.load import is_matrix

ROOT = Path(__file__).parents[1]


def main() -> None:
    matrices = sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if is_matrix(path))
    for page in write_pages(ROOT / "docs" / "results", matrices):
        print(page.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
