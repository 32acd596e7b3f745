"""Energy in reports, from hand-made records."""

import json

import pytest
from compared_runs import compare

from ddlsim.report.columns import energy, rounds
from ddlsim.report.comparing.curves import Target
from ddlsim.report.comparing.rows import compared
from ddlsim.report.reading import read
from ddlsim.report.sections import sections
from ddlsim.report.summary import summary_of
from ddlsim.report.summary_table import rows
from ddlsim.report.text import grams_text, joules_text

NODE = {"steps": 4.0, "computing_s": 2.0, "idle_s": 1.0, "sent_bytes": 10, "received_bytes": 10}
SPENT = [  # of the three nodes, in kJ
    {"compute_j": 1e3, "idle_j": 100.0, "upload_j": 60.0, "download_j": 40.0},
    {"compute_j": 2e3, "idle_j": 100.0, "upload_j": 60.0, "download_j": 40.0},
    {"compute_j": 3e3, "idle_j": 0.0, "upload_j": 0.0, "download_j": 0.0},
]


@pytest.fixture
def metered(make_run):
    """Write a run whose nodes have spent 0.3 kJ each at the first evaluation and `SPENT` at the last."""

    def make(name="run", grid="gco2_per_kwh: 360", ended=True, **keys):
        spent = [
            {
                "time_s": 22.0 if completed == 2 else 42.0,
                "node": node,
                "round": completed,
                "name": "joules",
                "value": value,
            }
            for completed, values in ((2, [300.0] * 3), (4, [1200.0, 2200.0, 3000.0]))
            for node, value in enumerate(values)
        ]
        directory = make_run(name, rows=make_run.rows() + spent, **keys)
        with (directory / "scenario.yaml").open("a") as file:
            file.write(f"energy: {{watts: 10, {grid}}}\n")
        if ended:
            lines = [{"node": node, **NODE, **one} for node, one in enumerate(SPENT)]
            (directory / "energy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return directory

    return make


def test_summary_has_joules_by_purpose_and_emissions(metered):
    found = summary_of(read(metered()))["energy"]
    assert (found["joules"], found["compute_j"], found["idle_j"]) == (6400.0, 6000.0, 200.0)
    assert found["gco2"] == pytest.approx(6400 / 3.6e6 * 360)
    assert found["clusters"] == [1700.0, 3000.0] and found["node_max"] == 3000.0


def test_grid_preset_gives_emissions_and_no_grid_gives_none(metered):
    assert summary_of(read(metered("a", "grid: france_2023")))["energy"]["gco2"] == pytest.approx(6400 / 3.6e6 * 56)
    assert summary_of(read(metered("b", "idle_w: 1")))["energy"]["gco2"] is None


def test_run_without_energy_section_reports_no_energy(make_run):
    summary = summary_of(read(make_run()))
    assert "energy" not in summary and "joules" not in summary["target"]
    assert "energy" not in dict(rows(summary))
    assert "energy to target" not in compare([make_run("other")])


def test_cost_to_target_has_joules_and_grams(metered):
    target = summary_of(read(metered()))["target"]
    assert (target["round"], target["joules"]) == (4, 6400.0)
    assert target["gco2"] == pytest.approx(6400 / 3.6e6 * 360)
    # Accuracy over all nodes goes from 0.533 to 0.8, so 0.7 is reached at 5/8 of the way from 900 J to 6400 J.
    assert target["interpolated"]["joules"] == pytest.approx(900 + 0.625 * 5500)


def test_running_run_reports_the_joules_of_its_last_evaluation(metered):
    summary = summary_of(read(metered(ended=False, status="running")))
    assert summary["energy"] == {"joules": 6400.0, "gco2": pytest.approx(0.64)}
    assert dict(rows(summary))["energy"] == "6.4 kJ (estimated)"


def test_summary_table_names_every_purpose(metered):
    lines = dict(rows(summary_of(read(metered()))))
    assert lines["energy"] == "6.4 kJ (computing 6 kJ, idle 200 J, sending 120 J, receiving 80 J) (estimated)"
    assert lines["energy per node"] == "mean 2.13 kJ, at most 3 kJ (estimated)"
    assert lines["emissions"] == "640 mg CO2e (estimated)"
    assert lines["target 70.00 %, first evaluation"] == "round 4, 1.2 kB, 42.0s, 6.4 kJ, 640 mg CO2e"


def test_comparison_has_energy_and_energy_to_target(metered, make_run):
    text = compare([metered("with"), make_run("without")])
    _, _, header, _, *lines = text.splitlines()
    assert "energy to target" in header and "CO2e to target" in header
    assert "energy (kJ)" in header and any(line.split()[-7:-5] == ["6.40", "0.640"] for line in lines)
    (row,) = compared([read(metered("again"))], target=Target(0.5))
    assert row.numbers["target_joules"]["mean"] == 900.0


def test_frames_have_joules_per_round_and_per_node(metered):
    records = read(metered())
    assert rounds(records)["joules"].tolist() == [900.0, 6400.0]
    assert rounds(records)["gco2"].tolist() == pytest.approx([0.09, 0.64])
    assert energy(records)["joules"].tolist() == [1200.0, 2200.0, 3000.0]


def test_a_page_shows_energy_by_purpose(metered):
    records = read(metered())
    shown = {section.key: section for section in sections(records, summary_of(records))}
    assert shown["energy"].figure.values.tolist() == [[1500.0, 100.0, 60.0, 40.0], [3000.0, 0.0, 0.0, 0.0]]
    assert [axis.unit for axis in shown["quality"].figure.x] == ["count", "seconds", "bytes", "joules"]


def test_joules_and_grams_have_readable_units():
    assert [joules_text(value) for value in (0.0, 0.0123, 999.6, 3.6e6, None)] == [
        "0 J",
        "12.3 mJ",
        "1 kJ",
        "3.6 MJ",
        "-",
    ]
    assert [grams_text(value) for value in (0.5, 1234.0)] == ["500 mg", "1.23 kg"]


@pytest.mark.parametrize(("counted", "mean"), [(3, 2133.333), (4, None)])
def test_totals_with_a_server_have_no_mean_over_nodes(metered, counted, mean):
    directory = metered()
    total = {name: sum(one[name] for one in SPENT) for name in SPENT[0]}
    (directory / "energy.jsonl").write_text(json.dumps({"node": None, **NODE, **total, "nodes": counted}) + "\n")
    found = summary_of(read(directory))["energy"]
    assert found["joules"] == 6400.0 and found["node_mean"] == (mean and pytest.approx(mean))
