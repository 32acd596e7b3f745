"""CUDA graphs of functions that are called again and again with tensors of the same shapes.

A step of small models is a hundred kernels of microseconds each; launching them one by one takes the host longer than
the device needs to run them. A graph launches them all at once.
"""

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence

import torch

Tensors = tuple[torch.Tensor, ...]

Function = Callable[..., Tensors]
"""Tensors -> tensors, on one device, without looking at a value on the host."""

WARM_UPS = 3
"""Calls on a stream of their own before recording, as torch asks for: libraries set themselves up in them."""
CALLS_BEFORE = 2
"""Calls as usual before a shape counts as one that repeats."""
MOST_GRAPHS = 32
"""Each holds memory of its own for its inputs and result."""
MOST_BYTES = 2**28
"""Inputs beyond this keep the device busy without a graph, and would be held twice."""


class StepGraphs:
    """Calls functions, through graphs where shapes repeat.

    A graph's first answer is compared with the function's own. Where they differ, or nothing can be recorded, functions
    are called as usual from then on, with one warning.

    Args:
        record: makes a graph; None where the device has none, and every function is called as usual.
    """

    def __init__(self, record: Callable[[Function, Sequence[torch.Tensor]], "Graph"] | None):
        self._record = record
        self._calls: Counter[Hashable] = Counter()
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()

    def call(self, key: Hashable, function: Function, *inputs: torch.Tensor) -> Tensors:
        """What the function makes of the inputs; the tensors may be written again by the next call.

        Args:
            key: which function it is; together with the inputs' shapes it decides which graph serves.
        """
        if self._record is None or sum(tensor.nbytes for tensor in inputs) > MOST_BYTES:
            return function(*inputs)
        key = (key, *(tensor.shape for tensor in inputs))
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key](inputs)
        self._calls[key] += 1
        if self._calls[key] <= CALLS_BEFORE:
            return function(*inputs)
        return self._first_call(key, function, inputs)

    def _first_call(self, key: Hashable, function: Function, inputs: Sequence[torch.Tensor]) -> Tensors:
        expected = function(*inputs)
        try:
            assert self._record is not None, "asked for only where graphs are recorded"
            graph = self._record(function, inputs)
            found = graph(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            return self._give_up(f"could not be recorded ({str(error).splitlines()[0]})", expected)
        pairs = zip(found, expected, strict=True)
        if not all(torch.allclose(*pair, rtol=1e-4, atol=1e-6, equal_nan=True) for pair in pairs):
            return self._give_up("computed something else than its steps", expected)
        self._graphs[key] = graph
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return expected

    def _give_up(self, why: str, expected: Tensors) -> Tensors:
        warnings.warn(f"a CUDA graph {why}: steps are launched one by one, with the same results", stacklevel=2)
        self._record = None
        self._graphs.clear()
        return expected


class Graph:
    """A recorded function with memory of its own for its inputs and its results.

    Args:
        replay: computes `results` from `inputs` anew.
        inputs: what the recorded function reads.
        results: what it writes.
    """

    def __init__(self, replay: Callable[[], None], inputs: Sequence[torch.Tensor], results: Tensors):
        self._replay = replay
        self._inputs = list(inputs)
        self._results = results

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        """The results for other inputs of the same shapes; they stay until the next call of this or another graph."""
        torch._foreach_copy_(self._inputs, list(inputs))
        self._replay()
        return self._results


class CudaRecorder:
    """Records CUDA graphs; they share their intermediate memory, since one runs after the other.

    Args:
        device: of all tensors.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Function, inputs: Sequence[torch.Tensor]) -> Graph:
        with torch.cuda.device(self._device):
            held = [tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs]
            aside, current = torch.cuda.Stream(), torch.cuda.current_stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                for _ in range(WARM_UPS):
                    function(*held)
            current.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                results = function(*held)
        return Graph(graph.replay, held, results)
