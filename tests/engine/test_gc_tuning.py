import gc
import weakref

from ddlsim.engine.gc_tuning import searching_rarely


class Ring:
    """Holds itself."""

    def __init__(self):
        self.ring = self


def test_what_an_earlier_run_left_behind_is_freed():
    with searching_rarely(1000):
        left_behind = weakref.ref(Ring())
    assert left_behind() is not None
    with searching_rarely(1000):
        assert left_behind() is None


def test_the_collector_is_as_it_was_before():
    before = gc.get_threshold()
    with searching_rarely(1000):
        assert gc.get_threshold()[0] == 20_000
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_small_simulations_leave_the_collector_alone():
    before = gc.get_threshold()
    with searching_rarely(999):
        assert gc.get_threshold() == before
