"""How benches of the kernels are timed: made-up calls on a made-up benchmark."""

from types import SimpleNamespace

import freed_memory
import pytest
import torch
import turns


class Disabled:
    """The benchmark fixture under --benchmark-disable."""

    disabled = True

    def __call__(self, call):
        return call()


@pytest.fixture
def bench():
    def pedantic(call, setup, rounds):
        for _ in range(rounds):
            setup()
            call()

    return SimpleNamespace(disabled=False, pedantic=pedantic, extra_info={})


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name in ("TURNS_S", "FRESH_TURNS_S", "WARM_UP_S"):
        monkeypatch.setattr(turns, name, 0.0)


def test_first_alternative_gives_the_ratio_and_all_are_named(bench):
    turns.compare(bench, list, {"a": list, "b": list}, {"a, new memory": list})
    found = bench.extra_info
    assert found["alternative"] == "a" and found["ratio"] == found["ours_s"] / found["theirs_s"]
    assert set(found["others"]) == {"b", "a, new memory"}
    assert "floor_s" not in found


@pytest.mark.skipif(not freed_memory.differs(), reason="no glibc")
def test_only_the_fresh_alternatives_get_new_memory(bench, monkeypatch):
    monkeypatch.setattr(turns, "WARM_UP_S", 10.0)  # until a turn needs no new pages
    faults: dict[str, list[int]] = {"kept": [], "new": []}

    def takes_memory(name: str):
        before = freed_memory.faults()
        torch.empty(12 * 2**20).fill_(1)
        faults[name].append(freed_memory.faults() - before)

    turns.compare(bench, list, {"kept": lambda: takes_memory("kept")}, {"new": lambda: takes_memory("new")})
    assert min(faults["kept"]) < 4
    assert min(faults["new"]) >= 24  # huge pages at most


def test_a_measurement_may_be_the_mean_of_many_calls(bench):
    called: list[str] = []
    turns.compare(bench, lambda: called.append("ours"), {"a": lambda: called.append("a")}, calls=7)
    assert called.count("a") % 7 == 0 and called[:14] == ["ours"] * 7 + ["a"] * 7


def test_disabled_bench_runs_its_function_once():
    called: list[str] = []
    turns.compare(Disabled(), lambda: called.append("ours"), {"a": lambda: called.append("a")})
    assert called == ["ours"]
