"""A run has a stage after its last round only where its algorithm exchanges models in it."""

from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"


@pytest.mark.parametrize("name", ["dpsgd", "el", "deprl", "facade"])
def test_without_a_final_exchange_a_run_ends_with_its_last_round(tmp_path, name):
    sets = ("rounds=2", f"algorithm={{name: {name}, final_all_reduce: false}}")
    assert runs.run(load(SMOKE, sets), out=tmp_path)["evaluated_round"] == 2


def test_the_final_exchange_is_evaluated_in_the_place_of_the_last_round(tmp_path):
    assert runs.run(load(SMOKE, ("rounds=2", "algorithm={name: el}")), out=tmp_path)["evaluated_round"] == 3
