"""The script of a GPU's checks and benches, with a CPU in place of the GPU; and its tables."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benches"))

import gpu_tables  # noqa: E402
import on_gpu  # noqa: E402
from gpu_checks import Setting  # noqa: E402

H200 = {"device": "NVIDIA H200", "driver": "580.1", "date": "2027-01-01", "versions": {"torch": "2.14"}}
LINES = [
    {"step": "versions", "seconds": 1.0, "exit_code": 0, "figures": H200},
    {"step": "cell", "seconds": 90.04, "exit_code": 130, "stopped_after_s": 90, "figures": {"round_s": 0.0301}},
    {
        "step": "models",
        "seconds": 3.0,
        "exit_code": 0,
        "figures": {"GPT x 8": {"peak_bytes": 2_500_000_000, "a repeat gives the same records": True}},
    },
    {
        "step": "bench_gpu",
        "seconds": 2.0,
        "exit_code": 5,
        "figures": {"a wave": {"ours_s": 0.024, "theirs_s": 0.24, "alternative": "PyTorch", "ratio": 0.1}},
    },
]

ODD_STEPS = """
import os, time

def fails(setting):
    yield {"first": 1}
    raise ValueError("no second one")

def crashes(setting):
    os.abort()

def hangs(setting):
    yield {"first": 1}
    time.sleep(600)

def works(setting):
    yield {"DDLSIM_TRITON": os.environ["DDLSIM_TRITON"]}
"""


@pytest.mark.full
def test_whole_script_on_the_cpu(tmp_path, capsys):
    command = ["bash", str(ROOT / "benches" / "on_gpu.sh"), str(tmp_path), "--small"]
    alone = {name: value for name, value in os.environ.items() if "XDIST" not in name}  # else benches are not timed
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    logs = {path.stem: path.read_text()[-2000:] for path in tmp_path.glob("*.log")}
    assert {line["step"]: line["exit_code"] for line in lines} == {step.name: 0 for step in on_gpu.STEPS}, logs
    assert done.returncode == 0, done.stderr
    assert lines == [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    figures = {line["step"]: line["figures"] for line in lines}
    assert all(case["a repeat gives the same records"] for case in figures["models"].values())
    gpu_tables.main([str(tmp_path)])
    found = capsys.readouterr().out
    assert "| cell | rounds | 2 |" in found and "| bench | ours | alternative |" in found
    with pytest.raises(SystemExit, match="figures of a CPU"):
        gpu_tables.main([str(tmp_path), "--write"])


@pytest.mark.full
def test_failed_crashed_and_hanging_steps_do_not_stop_the_next_ones(tmp_path, monkeypatch, capsys):
    (tmp_path / "odd_steps.py").write_text(ODD_STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(on_gpu, "GRACE_S", 1.0)
    import odd_steps

    steps = [
        on_gpu.Step("convolutions", 60, odd_steps.fails),
        on_gpu.Step("crashes", 60, odd_steps.crashes),
        on_gpu.Step("hangs", 1, odd_steps.hangs),
        on_gpu.Step("works", 60, odd_steps.works),
    ]
    assert on_gpu.run_all(steps, Setting(tmp_path, small=True)) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["step"], line["exit_code"]) for line in lines] == [
        ("convolutions", 1),
        ("crashes", -6),
        ("hangs", 1),
        ("works", 0),
    ]
    assert lines[0]["figures"] == {"first": 1, "the following steps use": "cuDNN"}
    assert lines[2]["figures"] == {"first": 1} and lines[2]["stopped_after_s"] == 6 and lines[2]["seconds"] < 12
    assert lines[3]["figures"] == {"DDLSIM_TRITON": "0"}, "cuDNN convolves after the tests of Triton have failed"
    assert "no second one" in (tmp_path / "convolutions.log").read_text()


def test_script_without_a_gpu_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        on_gpu.main([str(tmp_path)])
    assert "no CUDA device here; --small" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_limits_of_all_steps_are_below_500_seconds():
    assert sum(step.limit_s for step in on_gpu.STEPS) <= on_gpu.TOTAL_S < 500
    assert on_gpu.STEPS[-1].name == on_gpu.QUEUE


def test_tables_replace_the_text_between_the_marks(tmp_path, monkeypatch):
    page = tmp_path / "gpu.md"
    page.write_text(f"before\n{gpu_tables.BEGIN}\nold\n{gpu_tables.END}\nafter\n")
    gpu_tables.write(gpu_tables.tables(LINES), page)
    assert page.read_text().splitlines() == [
        "before",
        "<!-- on_gpu.sh -->",
        "device NVIDIA H200; driver 580.1; date 2027-01-01; versions: torch 2.14.",
        "",
        "| step | seconds | ended |",
        "| --- | ---: | ---: |",
        "| cell | 90.0 | stopped after 90 s |",
        "| models | 3.0 | done |",
        "| bench_gpu | 2.0 | failed (exit code 5) |",
        "",
        "| step | figure | value |",
        "| --- | --- | ---: |",
        "| cell | round | 30.1 ms |",
        "| models | GPT x 8: peak | 2.50 GB |",
        "| models | GPT x 8: a repeat gives the same records | yes |",
        "",
        "| bench | ours | alternative | its time | ours / its |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a wave | 24 ms | PyTorch | 240 ms | 0.10 |",
        "<!-- end of on_gpu.sh -->",
        "after",
    ]


def test_page_has_the_marks_of_the_tables():
    text = gpu_tables.PAGE.read_text()
    assert text.count(gpu_tables.BEGIN) == text.count(gpu_tables.END) == 1
