"""Device time is booked on the kind of work that launched it, not on the kind that waits for it."""

from ddlsim.learning.backends import device
from ddlsim.learning.backends.device import DeviceTime


class Queue:
    """A device that runs its work in order; a mark is passed when all earlier work is done.

    Attributes:
        until_ms: time when all work is done, on the device's clock.
        seen: marks for which the host has waited.
    """

    def __init__(self):
        self.until_ms, self.seen = 0.0, 0

    def launch(self, took_ms):
        self.until_ms += took_ms

    def mark(self):
        return Passed(self, self.until_ms)


class Passed:
    def __init__(self, queue, at_ms):
        self.queue, self.at_ms = queue, at_ms

    def synchronize(self):
        self.queue.seen += 1

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


def test_device_time_counts_launched_work_only():
    queue = Queue()
    measured = DeviceTime(queue.mark)
    for kind, took_ms in (("training", 40), ("merging", 1), ("head losses", 5), ("training", 60)):
        with measured.of(kind):
            queue.launch(took_ms)
    assert queue.seen == 0  # launching waits for nothing
    assert measured.seconds() == {"training": 0.1, "merging": 0.001, "head losses": 0.005}


def test_old_marks_are_closed(monkeypatch):
    monkeypatch.setattr(device, "MOST_OPEN", 3)
    queue = Queue()
    measured = DeviceTime(queue.mark)
    for _ in range(10):
        with measured.of("training"):
            queue.launch(250)
    assert queue.seen == 7
    assert measured.seconds() == {"training": 2.5}


def test_without_a_queue_nothing_is_measured():
    measured = DeviceTime(None)
    with measured.of("training"):
        pass
    assert measured.seconds() == {}


def test_a_run_books_its_waves_by_kind(make_learner):
    import numpy as np

    learner, queue = make_learner(), Queue()
    learner.backends._device_time = DeviceTime(queue.mark)
    compute = learner.backends.run_distinct
    took_ms = {"training": 40, "merging": 1, "head losses": 5}
    learner.backends.run_distinct = lambda kind, specs: queue.launch(took_ms[kind]) or compute(kind, specs)
    model = learner.train(0, learner.init_models(0)[0], 1, np.random.default_rng(0))
    merged = tuple(learner.merge([part], [1.0]) for part in model)
    learner.value(learner.losses(0, [merged], 1, np.random.default_rng(0)))
    assert learner.device_s == {"training": 0.04, "merging": 0.001, "head losses": 0.005}
