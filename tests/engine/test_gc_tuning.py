import gc
import weakref

from ddlsim.engine.gc_tuning import free_earlier_runs, relaxed_gc


class Ring:
    """Refers to itself."""

    def __init__(self):
        self.ring = self


def test_memory_of_an_earlier_run_is_freed():
    with relaxed_gc(1000):
        left_behind = weakref.ref(Ring())
    assert left_behind() is not None
    free_earlier_runs(1000)
    assert left_behind() is None


def test_collector_runs_less_often_for_many_nodes_and_is_restored():
    before = gc.get_threshold()
    for num_nodes, objects in ((10, 20_000), (1000, 200_000), (50_000, 2_000_000), (200_000, 4_000_000)):
        with relaxed_gc(num_nodes):
            assert gc.get_threshold()[0] == objects
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == 0


def test_disabled_collector_stays_disabled():
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with relaxed_gc(10):
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
