"""The regression gate on made-up reports."""

import importlib.util
import json
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"benches_{name}", BENCHES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gate, table = load("gate"), load("table")


def report(processor: str = "Abacus 3", family: int = 7, **ratios: float | None) -> dict:
    """Write a report of pytest-benchmark; a bench with the ratio None stores none."""
    infos = {
        name: {} if ratio is None else {"ratio": ratio, "ours_s": ratio, "theirs_s": 1.0, "alternative": "torch"}
        for name, ratio in ratios.items()
    }
    return {
        "machine_info": {
            "cpu": {"brand_raw": processor, "family": family, "count": 2},
            "processor": "x86_64",
            "python_version": "3.11.7",
            "instruction_set": "x86-64-v4",
            "versions": {"torch": "2.15.0"},
        },
        "datetime": "2031-02-03T04:05:06",
        "benchmarks": [
            {
                "fullname": f"benches/bench_made_up.py::{name}",
                "name": name,
                "extra_info": info,
                "stats": {"median": 1.0},
            }
            for name, info in infos.items()
        ],
    }


@pytest.fixture
def run(tmp_path):
    """run(*words, reports=[...]) -> exit status; baseline.json and README.md live in tmp_path."""
    (tmp_path / "README.md").write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")

    def run(*words: str, reports: list[dict]) -> int:
        paths = []
        for number, made in enumerate(reports):
            paths.append(tmp_path / f"{number}.json")
            paths[-1].write_text(json.dumps(made))
        places = ["--baseline", str(tmp_path / "baseline.json"), "--readme", str(tmp_path / "README.md")]
        return gate.main([*words, *map(str, paths), *places])

    return run


@pytest.fixture
def stored(run):
    assert run("--store", reports=[report(steady=0.50, wild=0.5), report(steady=0.52, wild=0.7)]) == 0


def entries(tmp_path) -> dict:
    found = json.loads((tmp_path / "baseline.json").read_text())["ratios"]
    return {name.rpartition("::")[2]: entry for name, entry in found.items()}


def test_baseline_stores_the_median_and_gates_only_steady_ratios(run, tmp_path):
    made = [report(steady=0.50, wild=0.5, rate=None), report(steady=0.54, wild=0.7), report(steady=0.51, wild=0.6)]
    run("--store", reports=made)
    found = entries(tmp_path)
    assert set(found) == {"steady", "wild"}
    assert found["steady"] == {"alternative": "torch", "ratio": 0.51, "spread": 1.08, "gated": True}
    assert (found["wild"]["spread"], found["wild"]["gated"]) == (1.4, False)


def test_machine_and_date_are_stored(run, stored, tmp_path):
    found = json.loads((tmp_path / "baseline.json").read_text())
    assert found["machine"] == {"processor": "Abacus 3", "family": 7, "cores": 2, "instruction_set": "x86-64-v4"}
    assert (found["date"], found["runs"], found["versions"]) == ("2031-02-03", 2, {"torch": "2.15.0"})


def test_single_run_marks_no_ratio_as_steady(run, tmp_path):
    run("--store", reports=[report(steady=0.5)])
    assert not entries(tmp_path)["steady"]["gated"]


def test_missing_bench_is_reported_as_unsteady(run, tmp_path):
    run("--store", reports=[report(other=1.0, sometimes=0.5), report(other=1.0), report(other=1.0, sometimes=0.5)])
    assert not entries(tmp_path)["sometimes"]["gated"]


def test_a_bench_can_exclude_itself(run, tmp_path):
    made = report(threaded=0.5)
    made["benchmarks"][0]["extra_info"]["gated"] = False
    run("--store", reports=[made, made])
    assert not entries(tmp_path)["threaded"]["gated"]


@pytest.mark.parametrize(("ratio", "status"), [(0.30, 0), (0.51, 0), (0.63, 0), (0.64, 1), (5.0, 1)])
def test_gate_fails_at_a_fifth_below_the_stored_speed(run, stored, ratio, status):
    assert run(reports=[report(steady=ratio, wild=0.5)]) == status


def test_failed_bench_is_named(run, stored, capsys):
    run(reports=[report(steady=0.75, wild=9.0)])
    errors = capsys.readouterr().err
    assert "FELL benches/bench_made_up.py::steady: 0.750 of torch, stored 0.510: speed 68%" in errors
    assert "wild" not in errors


def test_missing_benches_fail(run, stored, capsys):
    assert run(reports=[report(wild=0.5)]) == 2
    assert "steady is stored but not in the report" in capsys.readouterr().err


def test_ratio_to_another_alternative_is_not_gated(run, stored, capsys):
    made = report(steady=0.1)
    made["benchmarks"][0]["extra_info"]["alternative"] = "torch, memory kept"
    assert run(reports=[made]) == 2
    assert "or not against torch;" in capsys.readouterr().err


def test_best_of_repeated_runs_counts(run, stored):
    assert run(reports=[report(steady=0.9), report(steady=0.5)]) == 0


@pytest.mark.parametrize("other", [("Slide Rule 2", 7), ("Abacus 3", 8)], ids=["name", "family"])
def test_baseline_of_another_machine_gates_nothing(run, stored, capsys, other):
    assert run(reports=[report(*other, steady=0.9)]) == 0
    assert "--store" in capsys.readouterr().out


def test_missing_baseline_is_reported_with_the_command_to_make_it(run, capsys):
    assert run(reports=[report(steady=0.5)]) == 2
    assert "gate.py --store" in capsys.readouterr().err


def test_only_failed_benches_run_again(monkeypatch, tmp_path):
    asked, results = [], [report(a=0.9, b=0.5), report(a=0.8), report(a=0.5)]
    monkeypatch.setattr(gate, "run_benches", lambda names, _: asked.append(list(names)) or results[len(asked) - 1])
    baseline = gate.baseline_of([report(a=0.5, b=0.5), report(a=0.5, b=0.5)])
    reports = gate.run_gated(baseline, tmp_path)
    name = "benches/bench_made_up.py::{}".format
    assert asked == [[name("a"), name("b")], [name("a")], [name("a")]]
    assert gate.verdict(baseline, reports) == 0


def test_slow_bench_fails_after_its_repeats(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(gate, "run_benches", lambda names, _: asked.append(names) or report(a=0.9))
    baseline = gate.baseline_of([report(a=0.5), report(a=0.5)])
    assert gate.verdict(baseline, gate.run_gated(baseline, tmp_path)) == 1
    assert len(asked) == 1 + gate.REPEATS


def test_no_bench_runs_on_another_machine(run, stored, monkeypatch, capsys):
    monkeypatch.setattr(gate, "machine_here", lambda: gate.machine_of(report("Slide Rule 2")))
    monkeypatch.setattr(gate, "run_benches", lambda *_: pytest.fail("a bench was run"))
    assert run("--run", reports=[]) == 0
    assert "Slide Rule 2" in capsys.readouterr().out


def test_a_baseline_that_gates_nothing_fails(run, capsys):
    run("--store", reports=[report(steady=0.5)])
    assert run(reports=[report(steady=0.5)]) == 2
    assert "gates nothing" in capsys.readouterr().err


def test_table_is_written_between_the_marks(run, stored, tmp_path):
    before, after = (tmp_path / "README.md").read_text().split(table.BEGIN)
    assert before == "before\n" and after.endswith(f"{table.END}\nafter\n") and "old" not in after
    assert "Abacus 3, 2 cores, kernels on x86-64-v4, Python 3.11.7, torch 2.15.0, 2031-02-03" in after
    assert "| `bench_made_up`: steady | 520 ms | torch | 1 s | 0.52 |  |  |" in after


def test_several_reports_make_one_table():
    rows = table.table(table.joined([report(small=0.5), report(large=0.25)])).splitlines()[-2:]
    assert ["small" in rows[0], "large" in rows[1]] == [True, True]


def test_table_shows_floors_and_other_alternatives():
    made = report(kernel=0.25)
    made["benchmarks"][0]["extra_info"].update(floor_s=0.2, of_floor=1.25, others={"scipy": {"s": 2.0, "ratio": 0.125}})
    assert table.table(made).splitlines()[-2:] == [
        "| `bench_made_up`: kernel | 250 ms | torch | 1 s | 0.25 | 200 ms | 1.25 |",
        "|  |  | scipy | 2 s | 0.12 |  |  |",
    ]


@pytest.mark.parametrize("area", ["kernels", "event_loop", "round", "evaluation", "startup", "network"])
def test_every_area_has_a_gated_ratio_of_an_existing_bench(area):
    stored = json.loads((BENCHES / "baseline.json").read_text())
    assert stored["machine"]["processor"] and stored["date"] and stored["runs"] > 1
    of_area = {name: entry for name, entry in stored["ratios"].items() if f"bench_{area}.py::" in name}
    assert any(entry["gated"] for entry in of_area.values())
    text = (BENCHES / f"bench_{area}.py").read_text()
    assert all(f"def {name.partition('::')[2].partition('[')[0]}(" in text for name in of_area)
    assert all(entry["alternative"] and entry["ratio"] > 0 for entry in of_area.values())


def test_ci_runs_every_bench_once_and_then_the_gate():
    script = BENCHES.parent / ".ci" / "run"
    if not script.is_file():
        pytest.skip("an installed tree without its CI")
    lines = [line.split("#")[0].strip() for line in script.read_text().splitlines()]
    every_bench = "pytest benches --benchmark-disable"
    assert lines.index(every_bench) < lines.index("python benches/gate.py --run")
