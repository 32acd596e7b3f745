"""Threads that compute the jobs of a wave."""

import threading
from collections import defaultdict

import pytest
import torch

from ddlsim.learning.backends import threads as module
from ddlsim.learning.backends.threads import HELD_S, Workers


@pytest.fixture
def four_threads(monkeypatch):
    """Return workers on a simulated clock, which jobs advance by their stated seconds per thread."""
    spent_s = defaultdict(float)
    monkeypatch.setattr(module.time, "thread_time", lambda: spent_s[threading.get_ident()])
    made = Workers({}, torch.device("cpu"), 4)
    seen = []
    all_there = threading.Barrier(4)

    def run(num_jobs, job_s, together=False):
        """Return the number of threads used; `together`: each waits until all four have a job."""
        seen.clear()

        def job(workspace_of, number):
            if together and number < 4:
                all_there.wait(10)
            spent_s[threading.get_ident()] += job_s
            seen.append(threading.get_ident())
            return number

        assert made.map(job, range(num_jobs), "training") == list(range(num_jobs))
        return len(set(seen))

    yield run
    made.close()


def test_long_jobs_use_all_threads(four_threads):
    assert [four_threads(40, 10 * HELD_S, together=True) for _ in range(3)] == [4, 4, 4]


def test_short_jobs_use_one_thread_from_the_second_wave_on(four_threads):
    four_threads(40, HELD_S / 4)
    assert [four_threads(40, HELD_S / 4) for _ in range(3)] == [1, 1, 1]


def test_growing_jobs_use_all_threads_again(four_threads):
    four_threads(40, HELD_S / 4)
    assert four_threads(40, 10 * HELD_S) == 1
    assert four_threads(40, 10 * HELD_S, together=True) == 4


def test_kinds_of_jobs_have_separate_costs():
    workers = Workers({}, torch.device("cpu"), 2)
    workers.map(lambda workspace_of, job: job, range(10), "short")
    assert workers._worth["short"] == 1 and "long" not in workers._worth
    workers.close()


def test_first_failing_job_is_reported():
    workers = Workers({}, torch.device("cpu"), 2)

    def fail(workspace_of, number):
        if number >= 3:
            raise ValueError(f"job {number}")

    for _ in range(20):
        with pytest.raises(ValueError, match="job 3"):
            workers.map(fail, range(8), "training")
    workers.close()
