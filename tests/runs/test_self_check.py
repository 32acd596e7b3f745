"""Every run checks its counts at the end."""

import pytest

import ddlsim
from ddlsim.foundation.errors import DdlsimError
from ddlsim.report.summary_table import table

SMALL = {"rounds": 3, "nodes": {"clusters": [4]}, "learning": "none"}


def run(out, **options):
    return ddlsim.run("smoke", set=SMALL | options.pop("set", {}), out=out, progress="none", **options)


def test_summary_says_that_all_checks_have_passed(tmp_path):
    losses = {"network.drop_probability": 0.3, "network.on_drop": "drop", "mode": "async"}
    for name, changes in (("sync", {}), ("async", losses)):
        summary = run(tmp_path / name, algorithm="el", set=changes).summary
        assert summary["checks"] == "all passed (bytes, clock, messages, parameters)"
        assert "self-checks" in table(summary)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("ddlsim.network.network.Network.all_bytes_sent", "nodes sent 7 bytes, pairs"),
        ("ddlsim.network.messages.message.PayloadBreakdown.count", "0 messages were sent"),
        ("ddlsim.engine.packing.content_bytes", "parameters in model was counted as 7 bytes"),
    ],
)
def test_wrong_count_is_a_fault_of_ddlsim(tmp_path, monkeypatch, broken, text):
    monkeypatch.setattr(broken, lambda *_: 7)
    with pytest.raises(DdlsimError, match=f"{text}.*fault of ddlsim"):
        run(tmp_path / "run", algorithm="el")
    assert ddlsim.load(tmp_path / "run").status == "failed"


def test_force_keeps_one_earlier_run_of_the_same_scenario(tmp_path):
    for _ in range(4):
        run(tmp_path / "run", algorithm="el", force=True)
    assert len(list(tmp_path.iterdir())) == 2
