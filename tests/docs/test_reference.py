import re
from pathlib import Path

import pytest

from ddlsim.scenario.parts import TABLES, table

PAGE = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
CONTRACTS = {key: table(key).contract for key in TABLES if table(key).contract}


@pytest.mark.parametrize("key", CONTRACTS)
def test_the_contract_of_every_named_part_is_in_the_reference(key):
    module, name = CONTRACTS[key].split(":")
    module = TABLES[key].partition(":")[0] + module
    found = re.search(rf"automodule:: {re.escape(module)}\n   :members:(.*)", PAGE)
    assert found, f"{module} is not there"
    members = found[1].strip()
    assert not members or name in re.split(r", *", members)
