"""docs/defaults.md is generated from the code, and every default that can change a number has a reason."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("defaults_page", ROOT / "docs" / "_ext" / "defaults_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_of_defaults_is_current():
    """`python docs/_ext/defaults_page.py` writes it; a key without a reason has None there."""
    assert (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8") == generator().page()


def test_every_key_and_default_part_is_on_the_page_with_a_reason():
    from ddlsim.scenario.model import DEFAULTS, WHY

    text = generator().page()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| key")]
    assert all(cell.strip() not in ("", "None") for row in rows for cell in row.strip("|").split(" | "))
    sections = {key for key in DEFAULTS if f"`{key}." in text}
    assert {*sections, *(path.partition(".")[0] for path in WHY), "records"} == set(DEFAULTS)
    assert '| `init` | `"shared"` |' in text and "| `topology.dynamic` | `false` |" in text
    assert text.count("| `final_all_reduce` | `false` |") == 4
