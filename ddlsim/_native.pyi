"""Types of the compiled module, written by tools/native_stub.py; addresses are int, strides elements."""

from collections.abc import Sequence

import numpy
from numpy.typing import ArrayLike, NDArray

class ConvSpec:
    def __init__(
        self,
        *,
        inputs: int,
        outputs: int,
        kernel: Sequence[int],
        padding: Sequence[int],
        weight: int,
        bias: int,
        groups: int,
        scale: int,
        shift: int,
        epsilon: float,
        relu: bool,
        pool: bool,
        running: Sequence[int],
        momentum: float,
    ) -> None: ...

class FlowNetwork:
    def __init__(self, *, bandwidth: bool = True, incremental: bool = True) -> None: ...
    def add_link(self, arg0: float, /) -> int: ...
    def add_nodes(self, uplink: ArrayLike, downlink: ArrayLike, latency_ns: ArrayLike) -> None: ...
    def bytes_sent(self, arg0: int, arg1: int, /) -> int: ...
    def check(self) -> None: ...
    def next_time(self) -> int: ...
    @property
    def now(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_slots(self) -> int: ...
    def overdue(self) -> list[tuple[int, int]]: ...
    def rates(self) -> tuple[object, ...]: ...
    def remove_node(self, arg0: int, arg1: int, /) -> list[tuple[int, int]]: ...
    def run(self, until_ns: int = 9223372036854775807) -> tuple[object, ...]: ...
    def send(
        self,
        now_ns: int,
        src: int,
        dst: int,
        payload_bytes: int,
        header_bytes: int = 0,
        latency_ns: int = -1,
        lost: bool = False,
        links: Sequence[int] = [],
        weight: int = 0,
        ack_bytes: int = 0,
        in_order: bool = False,
        round_trip_ns: int = 0,
    ) -> int: ...
    def send_many(
        self,
        now_ns: int,
        src: ArrayLike,
        dst: ArrayLike,
        payload_bytes: ArrayLike,
        header_bytes: ArrayLike,
        latency_ns: ArrayLike,
    ) -> NDArray[numpy.int64]: ...
    def set_capacity(self, arg0: int, arg1: int, arg2: float, arg3: float, /) -> None: ...
    def set_deadline(self, slot: int, deadline_ns: int) -> None: ...
    def set_link_capacity(self, arg0: int, arg1: int, arg2: float, /) -> None: ...
    def step(self, arg0: int, /) -> list[object]: ...
    def traffic(self) -> dict[object, object]: ...
    def use_windows(self, first_bytes: int, least_timeout_ns: int) -> None: ...
    def work(self) -> dict[object, object]: ...

class LinearSpec:
    def __init__(
        self, *, inputs: int, outputs: int, weight: int, bias: int, relu: bool, dropouts: Sequence[tuple[float, int]]
    ) -> None: ...

NEVER_NS: int

class Optimizer:
    def __init__(
        self,
        *,
        adam: bool,
        decoupled: bool,
        rates: Sequence[float],
        momentum: float,
        weight_decay: float,
        weights_decay_alone: bool,
        betas: Sequence[float],
        epsilon: float,
        proximal: float,
        clip_norm: float,
        clip_value: float,
        control: int,
        label_smoothing: float,
        moments: Sequence[int],
        trained: Sequence[bool],
        steps: Sequence[int],
    ) -> None: ...

class Plan:
    def __init__(
        self,
        image_shape: Sequence[int],
        convs: Sequence[ConvSpec],
        linears: Sequence[LinearSpec],
        num_columns: int,
        core_linears: int,
        dropouts: Sequence[tuple[float, int]],
    ) -> None: ...
    def core_backward(self, grad_out: int, gradients: int) -> None: ...
    def core_forward(
        self, flat: int, images: int, count: int, training: bool, dropout_keys: Sequence[int], out: int
    ) -> None: ...
    @property
    def core_shape(self) -> list[int]: ...
    @property
    def feature_stride(self) -> int: ...
    def features(self, images: int, count: int, out: int) -> None: ...
    def load(self, flat: int, core: bool, head: bool) -> None: ...
    @property
    def num_outputs(self) -> int: ...
    def outputs(self, features: int, count: int, out: int) -> None: ...
    def train(
        self,
        flat: int,
        images: int,
        labels: int,
        count: int,
        rows: ArrayLike,
        batches: Sequence[int],
        optimizer: Optimizer,
        dropout_keys: Sequence[int],
    ) -> float: ...

RATE_UNITS_PER_BYTE_S: int

class Transport:
    def __init__(self, bandwidth: bool) -> None: ...
    def account(self) -> dict[object, object]: ...
    def add_nodes(self, arg0: ArrayLike, arg1: ArrayLike, arg2: ArrayLike, arg3: float, /) -> None: ...
    def all_bytes_sent(self, arg0: float, /) -> int: ...
    def announce(self, arg0: int, arg1: int, arg2: int, /) -> None: ...
    def arrived(self, arg0: int, arg1: float, /) -> bool: ...
    def bytes_sent(self, arg0: float, arg1: int, /) -> int: ...
    def clear(self, arg0: int, /) -> None: ...
    def close(self, arg0: int, /) -> None: ...
    def close_round(self, *arguments: object) -> object: ...
    def deliver(self, arg0: int, arg1: int, arg2: int, arg3: int, arg4: object, /) -> list[object]: ...
    def fail(self, arg0: int, arg1: int, arg2: int, arg3: int, /) -> list[object]: ...
    def flying(self, arg0: float, /) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]: ...
    def give_up(self, arg0: int, arg1: int, arg2: object, /) -> list[object]: ...
    def measure_by(self, arg0: float, arg1: int, arg2: float, arg3: float, /) -> None: ...
    @property
    def network(self) -> FlowNetwork: ...
    def online(self, arg0: int, /) -> bool: ...
    def reconsider(self, arg0: int, /) -> list[object]: ...
    def remove_node(self, arg0: float, arg1: int, /) -> list[object]: ...
    def return_node(self, arg0: int, /) -> None: ...
    def run_ahead(self, now_s: float, next_event_s: float) -> float: ...
    def send(self, *arguments: object) -> object: ...
    def send_routed(
        self,
        now_s: float,
        message: object,
        dst: int,
        kinds: dict[object, object],
        latency_ns: int,
        again: bool,
        lost: bool,
        links: Sequence[int],
        least_shared: float,
        weight: int = 0,
        ack_bytes: int = 0,
        ack_links: Sequence[int] = [],
        in_order: bool = False,
        round_trip_ns: int = 0,
    ) -> bool: ...
    def set_capacity(self, arg0: float, arg1: int, arg2: float, arg3: float, /) -> None: ...
    def set_open_round(self, arg0: int, arg1: int, /) -> None: ...
    def set_timeout(self, timeout_ns: int) -> None: ...
    def take(self, *arguments: object) -> object: ...
    def take_news(self) -> tuple[object, ...]: ...
    def unused(self, arg0: int, arg1: int, arg2: int, arg3: int, arg4: int, /) -> None: ...
    def wait(self, *arguments: object) -> object: ...
    def waiting_for(self, arg0: int, arg1: int, /) -> list[object]: ...

def all_pairs(
    x: int,
    stride: int,
    rows: ArrayLike,
    reference: int,
    reference_stride: int,
    reference_rows: ArrayLike,
    column_start: int,
    column_stop: int,
    squared: bool,
    threads: int,
) -> NDArray[numpy.float64]: ...
def check_row_numbers(numbers: ArrayLike, num_rows: int, name: str) -> None: ...
def checked_mixing(
    indptr: numpy.ndarray,
    sources: numpy.ndarray,
    weights: ArrayLike,
    num_targets: int,
    num_sources: int,
    keep_empty: bool,
) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.float32]]: ...
def cosines(
    terms: Sequence[tuple[int, int, ArrayLike, int, int, ArrayLike, int, int, float]],
    pairs: ArrayLike | None,
    divisor: float,
    out: int,
    threads: int,
) -> None: ...
def inverse_distances(
    x: int,
    stride: int,
    rows: ArrayLike,
    reference: int,
    reference_stride: int,
    reference_rows: ArrayLike,
    column_start: int,
    column_stop: int,
    pairs: ArrayLike | None,
    offset: float,
    out: int,
    threads: int,
) -> None: ...
def isa() -> str: ...
def isas() -> list[str]: ...
def listed_pairs(
    x: int,
    stride: int,
    rows: ArrayLike,
    reference: int,
    reference_stride: int,
    reference_rows: ArrayLike,
    column_start: int,
    column_stop: int,
    squared: bool,
    pairs: ArrayLike,
    threads: int,
) -> NDArray[numpy.float64]: ...
def merge_rows(
    x: int,
    x_stride: int,
    out: int,
    out_stride: int,
    indptr: ArrayLike,
    sources: ArrayLike,
    weights: ArrayLike,
    targets: ArrayLike,
    column_start: int,
    column_stop: int,
    out_column_start: int,
    in_place: bool,
    threads: int,
) -> None: ...
def project_simplex(
    rows: int, stride: int, out: int, out_stride: int, num_rows: int, num_columns: int, float64: bool, threads: int
) -> None: ...
def set_isa(name: str) -> None: ...

source_stamp: str

def sparse_mixing(dense: ArrayLike) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.float32]]: ...
def start_of_permutation(capsule: object, n: int, count: int) -> NDArray[numpy.int64]: ...
def targets_are_read(targets: ArrayLike, sources: ArrayLike, num_rows: int) -> bool: ...
def trimmed_means(
    x: int,
    x_stride: int,
    out: int,
    out_stride: int,
    num_columns: int,
    indptr: ArrayLike,
    sources: ArrayLike,
    cuts: ArrayLike,
    kept: ArrayLike,
    targets: ArrayLike,
    threads: int,
) -> None: ...
