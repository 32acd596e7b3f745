"""CUDA graphs of functions that are called again and again with tensors of the same shapes.

A step of small models is a hundred kernels of microseconds each; launching them one by one takes the host longer than
the device needs to run them. A graph launches them all at once.
"""

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch

Tensors = tuple[torch.Tensor, ...]

Function = Callable[..., Tensors]
"""Tensors -> tensors, on one device, without looking at a value on the host. All have a row per model, [N, ...], and
rows never mix."""

WARM_UPS = 3
"""Calls on a separate stream before recording, as torch requires: libraries initialize themselves in them."""
CALLS_BEFORE = 2
"""Calls without a graph before a shape counts as repeated."""
STEPS_WORTH = 20
"""Number of steps from which a wave is recorded at once; a shorter wave is recorded if a similar one has run before."""
MOST_GRAPHS = 32
"""Most graphs at a time; each holds its own memory for its inputs and result."""
MOST_BYTES = 2**28
"""Inputs beyond this, without those in place, keep the device busy without a graph, and would be held twice."""
SAME = 1e-3
"""Largest accepted difference of a graph's first result from the plain steps, or of stacked models from one model
alone, relative to the largest value; a wrong result differs by far more."""


class StepGraphs:
    """Calls functions, through graphs where shapes repeat.

    Waves of nodes that are not synchronized have all sizes. They share few graphs: those for 1, 2, 3, 4, 6, 8, 12, 16,
    ... models and for all; the last model of a wave is repeated up to such a number. That is so before anything is
    recorded, too: a library may choose other kernels for other sizes, and a resumed run has recorded nothing yet.

    A graph's first result is compared with the function's. If they differ, or nothing can be recorded, functions are
    called as usual for these shapes from then on, with one warning for all.

    Args:
        record: makes a graph that reads the given tensors; None if the device has none: functions are then called as
            usual.
        most: usual number of models in a wave.

    Attributes:
        records: whether it makes graphs.
    """

    def __init__(self, record: Callable[[Function, Sequence[torch.Tensor]], "Graph"] | None, most: int):
        self._record, self.records = record, record is not None
        self._most = most
        self._waves: Counter[Hashable] = Counter()
        self._calls: Counter[Hashable] = Counter()
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()
        self._places: OrderedDict[Hashable, torch.Tensor] = OrderedDict()
        self._without: set[Hashable] = set()  # shapes for which there is no right graph

    def wave(self, key: Hashable, function: Function, count: int, steps: int) -> Function:
        """The function for the steps of one wave; the next call may overwrite its result.

        Args:
            key: which function it is; together with the inputs' shapes it decides which graph serves.
            function: the function to call.
            count: N, of all inputs.
            steps: number of calls.
        """
        if self._record is None:
            return function
        rows = self._num_rows(count)
        self._waves[key, rows] += 1
        worth = steps >= STEPS_WORTH or self._waves[key, rows] > 1
        return partial(self._call, (key, rows), worth, function)

    def in_place(self, key: Hashable, values: torch.Tensor) -> torch.Tensor:
        """Copy values [N, ...] that change between steps to memory that graphs read where it is, until the next wave of
        this key and size.
        """
        if self._record is None:
            return values
        rows = self._num_rows(len(values))
        of_wave = key, rows, values.shape[1:], values.dtype
        if of_wave not in self._places:
            self._places[of_wave] = values.new_empty(rows, *values.shape[1:])
            if len(self._places) > MOST_GRAPHS:
                self._places.popitem(last=False)
        self._places.move_to_end(of_wave)
        place = self._places[of_wave]
        place[: len(values)] = values
        place[len(values) :] = values[-1:]
        return place[: len(values)]

    def _num_rows(self, count: int) -> int:
        """Number of rows of the graph that serves a wave."""
        return max(count, min(_rounded_up(count), self._most))

    def _is_place(self, tensor: torch.Tensor) -> bool:
        return any(place is tensor for place in self._places.values())

    def _with_rows(self, tensor: torch.Tensor, rows: int) -> torch.Tensor:
        """A tensor with as many rows, the last one repeated; of one that is in place its whole memory."""
        for place in self._places.values():
            if place.data_ptr() == tensor.data_ptr() and len(place) == rows:
                return place
        missing = rows - len(tensor)
        return torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) if missing else tensor

    def _call(self, key: tuple[Hashable, int], worth: bool, function: Function, *inputs: torch.Tensor) -> Tensors:
        shapes = (*key, *(tensor.shape[1:] for tensor in inputs))
        if shapes in self._graphs:
            self._graphs.move_to_end(shapes)
            return self._graphs[shapes](inputs)
        whole = [self._with_rows(tensor, key[1]) for tensor in inputs]
        expected = function(*whole)
        copied = sum(tensor.nbytes for tensor in whole if not self._is_place(tensor))
        if worth and shapes not in self._without and copied <= MOST_BYTES:
            self._calls[shapes] += 1
            if self._calls[shapes] > CALLS_BEFORE:
                self._try(shapes, function, whole, expected)
        return tuple(result[: len(inputs[0])] for result in expected)

    def _try(self, shapes: Hashable, function: Function, inputs: Sequence[torch.Tensor], expected: Tensors) -> None:
        try:
            assert self._record is not None, "asked for only where graphs are recorded"
            held = [
                tensor if self._is_place(tensor) else tensor.clone(memory_format=torch.contiguous_format)
                for tensor in inputs
            ]
            graph = self._record(function, held)
            found = graph(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if isinstance(error.__context__, torch.OutOfMemoryError):  # the end of the recording failed as well
                raise error.__context__ from None
            self._give_up(shapes, f"could not be recorded ({str(error).splitlines()[0]})")
            return
        if not all(is_close(*pair) for pair in zip(found, expected, strict=True)):
            self._give_up(shapes, "computed something else than its steps")
            return
        self._graphs[shapes] = graph
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)

    def _give_up(self, shapes: Hashable, why: str) -> None:
        if not self._without:
            warnings.warn(f"a CUDA graph {why}: its steps are launched one by one, with the same results", stacklevel=2)
        self._without.add(shapes)


def _rounded_up(count: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if power > 2 and count <= power * 3 // 4 else power


def is_close(found: torch.Tensor, expected: torch.Tensor, most: float = SAME) -> bool:
    """Whether two results differ by at most a share of the largest finite value; whole numbers must be equal."""
    if not expected.is_floating_point():
        return found.equal(expected)
    finite = expected[expected.isfinite()]
    within = most * (finite.abs().max().item() if finite.numel() else 1.0) + 1e-6
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=within, equal_nan=True)


class Graph:
    """A recorded function with its own memory for its inputs and its results.

    Args:
        replay: computes `results` from `inputs` again.
        inputs: tensors that the recorded function reads.
        results: tensors that it writes.
    """

    def __init__(self, replay: Callable[[], None], inputs: Sequence[torch.Tensor], results: Tensors):
        self._replay = replay
        self._inputs = list(inputs)
        self._results = results

    def __call__(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        """The results for other inputs of the same shapes, or of fewer rows; they stay until the next call of this or
        another graph.
        """
        rows = len(inputs[0])
        pairs = [(held[:rows], given) for held, given in zip(self._inputs, inputs, strict=True)]
        moved = [pair for pair in pairs if pair[0].data_ptr() != pair[1].data_ptr()]
        if moved:
            torch._foreach_copy_([held for held, _ in moved], [given for _, given in moved])
        self._replay()
        return tuple(result[:rows] for result in self._results)


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
            aside, current = torch.cuda.Stream(), torch.cuda.current_stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside):
                for _ in range(WARM_UPS):
                    function(*inputs)
            current.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                results = function(*inputs)
        return Graph(graph.replay, inputs, results)


def step_graphs_of(device: torch.device, most: int) -> StepGraphs:
    """Return the graphs of a device; `most` is the usual number of models in a wave."""
    return StepGraphs(CudaRecorder(device) if device.type == "cuda" else None, most)
