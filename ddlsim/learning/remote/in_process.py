"""Workers in the simulation's process, one call after the other: they receive the same data, and results are equal bit
by bit.
"""

import pickle
from collections.abc import Sequence
from typing import Any

from ddlsim.learning.remote.rows import Ref
from ddlsim.learning.remote.shard import Shard


class InProcess:
    """Workers in this process; a reference is the result itself.

    Args:
        shards: one per worker.
    """

    block_bytes = 2**28

    def __init__(self, shards: Sequence[Shard]):
        self._shards = shards
        self.count = len(shards)

    def call(self, worker: int, method: str, *arguments: Any) -> Ref:
        return getattr(self._shards[worker], method)(*arguments)

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Ref]:
        found = self.call(worker, method, *arguments)
        return [found] if results == 1 else list(found)

    def wait(self, ref: Ref) -> Any:
        return ref

    def packed(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()
