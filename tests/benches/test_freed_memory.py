"""The two memory policies for alternatives that make new tensors."""

import freed_memory
import pytest
import torch

BYTES = 48 * 2**20
needs_glibc = pytest.mark.skipif(not freed_memory.differs(), reason="no glibc")


def faults() -> int:
    """Return the page faults of one block that is written and freed."""
    before = freed_memory.faults()
    torch.empty(BYTES // 4).fill_(1)
    return freed_memory.faults() - before


@needs_glibc
def test_freed_memory_is_reused_without_page_faults():
    with freed_memory.kept() as differs:
        assert differs
        assert any(faults() < 4 for _ in range(50))


@needs_glibc
def test_large_blocks_come_from_the_system_after_the_context_ends():
    for _ in range(2):
        with freed_memory.kept():
            below = torch.empty(BYTES // 4).fill_(1)
            above = torch.empty(10)  # in use, so the heap cannot shrink by the block below it
            del below
            assert any(faults() < 4 for _ in range(50))
        assert all(faults() >= BYTES // 2**21 for _ in range(5))  # huge pages at most
        del above


def test_blocks_kept_by_glibc_make_no_difference():
    assert not freed_memory.differs(32 * 2**20)


def test_without_glibc_nothing_changes(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    freed_memory._glibc.cache_clear()
    assert not freed_memory.differs()
    with freed_memory.kept() as differs:
        assert not differs
    freed_memory._glibc.cache_clear()
