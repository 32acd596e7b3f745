import io
import sys
from types import SimpleNamespace

import pytest

from ddlsim.runs.progress import Progress


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


def test_plain_evaluation_line_has_all_values(clock):
    out = io.StringIO()
    with Progress("tiny", 1200, "plain", out, clock) as progress:
        progress.round(1, 9.3, 24_500_000)
        clock.now = 190.0
        progress.evaluation(400, 3720.0, 9_800_000_000, 0.5812, [0.586, 0.497])
    assert out.getvalue() == (
        "1,200 rounds, 2.1 round/s: about 6m21s left\n"
        "round 400/1200  sim 1h02m  9.8 GB  acc 0.581 (clusters 0.586 0.497)  2.1 round/s  ETA 6m21s\n"
    )


def test_progress_of_a_fallback_counts_its_rounds(clock):
    out = io.StringIO()
    with Progress("tiny", 1200, "plain", out, clock) as progress:
        progress.expect(40)
        progress.evaluation(10, 9.0, 429_000_000, 0.589, [0.597, 0.467])
    assert out.getvalue().startswith("round 10/40 ")


def test_rounds_are_silent_after_the_estimate_until_a_minute_without_a_line(clock):
    out = io.StringIO()
    progress = Progress("tiny", 100, "plain", out, clock)
    for completed in range(1, 8):
        clock.now += 10 if completed > 1 else 1
        progress.round(completed, completed, 1000)
    estimate, line = out.getvalue().splitlines()
    assert estimate == "100 rounds, 10.0 s/round: about 16m20s left"
    assert line == "round 7/100  sim 7.0s  1 kB  10.0 s/round  ETA 15m30s"


def test_a_long_first_round_bounds_the_duration(clock):
    out = io.StringIO()
    progress = Progress("tiny", 60, "plain", out, clock)
    clock.now = 20
    progress.expect(60)  # the data is loaded
    for clock.now in (110, 180):
        progress.round(1 + (clock.now > 110), 1.0, 1000)
    assert out.getvalue().splitlines()[0] == "60 rounds, 1m30s up to round 1: at most 1h28m left"


def test_evaluation_line_restarts_the_minute(clock):
    out = io.StringIO()
    progress = Progress("tiny", 100, "plain", out, clock)
    clock.now = 50
    progress.evaluation(1, 1.0, 1000, 0.1, [0.1])
    clock.now = 70
    progress.round(2, 2.0, 2000)
    assert len(out.getvalue().splitlines()) == 2  # of the evaluation, and the estimate


def test_log_without_a_terminal_is_plain(clock):
    out = io.StringIO()
    Progress("tiny", 10, "log", out, clock).evaluation(10, 1.0, 10, 0.5, [0.5])
    assert out.getvalue().startswith("round 10/10") and "\x1b" not in out.getvalue()


def test_progress_none_shows_only_messages(clock):
    out = io.StringIO()
    progress = Progress("tiny", 10, "none", out, clock)
    progress.evaluation(5, 1.0, 10, 0.5, [0.5])
    clock.now = 1000
    progress.round(6, 1.0, 10)
    progress.message("fallback data [mini]")
    assert out.getvalue() == "fallback data [mini]\n"


def test_a_terminal_gets_a_live_bar_and_lasting_messages(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    out = Terminal()
    with Progress("tiny[1]", 10, "log", out, clock) as progress:
        progress.message("data [mini]")
        progress.round(1, 5.0, 1000)
        progress.evaluation(5, 25.0, 5000, 0.5, [0.6, 0.4])
        progress._bar.refresh()
    progress.close()
    text = out.getvalue()
    assert "data [mini]\n" in text and "tiny[1]" in text
    assert "5/10" in text and "sim 25.0s  5 kB  acc 0.500 (clusters 0.600 0.400)" in text


class Broken(Terminal):
    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", [Broken(), io.StringIO()])
def test_failing_stream_ends_only_the_progress(clock, stream):
    if not stream.isatty():
        stream.close()
        stream.isatty = lambda: False
    with Progress("tiny", 10, "log", stream, clock) as progress:
        progress.message("data [mini]")
        progress.evaluation(5, 25.0, 5000, 0.5, [0.6, 0.4])


def test_bar_is_silent_without_terminal_and_notebook(clock):
    out = io.StringIO()
    with Progress("tiny", 4, "auto", out, clock) as progress:
        progress.round(1, 1.0, 1000)
        clock.now = 500
        progress.round(2, 2.0, 2000)
        progress.evaluation(2, 2.0, 2000, 0.1, [0.1])
        progress.message("stays")
    assert out.getvalue() == "stays\n"


def test_a_notebook_has_a_bar(clock, monkeypatch):
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with Progress("tiny", 4, "auto", io.StringIO(), clock) as progress:
        progress.expect(3)
        progress.round(2, 1.0, 1_000_000)
        bar = progress._bar
        assert (bar.n, bar.total, bar.desc) == (2, 3, "tiny") and "1 MB" in bar.postfix
    assert bar.disable  # closed
