"""Devices that train language models: seconds per local step by parameters, tokens, GPU and utilization.

A step of D tokens of a model with N parameters takes

    D (6 N + 12 L d s) / (G P U)  seconds,

with L layers of width d, sequences of s tokens, and G GPUs of peak P at model-FLOPs utilization U: 6 N for the forward
pass (2 N) and the backward pass (4 N), 12 L d s for the scores and sums of attention over the whole sequence
(Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", JMLR 2023, appendix B). The operations of models
that ddlsim builds are counted instead; the count has the same terms, without the embedding, which is a lookup.

Published utilizations (Llama 3: 0.38 to 0.43 on up to 16,384 H100, Dubey et al. 2024, table 4; torchtitan: 0.33 to 0.39
for 8 billion parameters on 8 H100; PaLM: 0.46) include communication between the GPUs of a data center. So does the
default 0.4. For slower GPU networks `inner_gbps` adds a ring all-reduce of gradients in bfloat16, 2 (G - 1) / G x 2 N
bytes over the bandwidth, without overlap. GPUs share a batch; stages of a pipeline are not modeled.

Peaks are those of dense matrix products in bfloat16 (V100: float16), which is half of the rate with sparsity. Sources
are data sheets, unless stated otherwise: the makers' for V100, A100, A10, H100, H200, B200 (HGX), L40S and RTX A6000;
the white papers of GA102 and Ada for RTX 3090 and 4090 (accumulation in float32); Google Cloud's documentation for
TPUs, and Lockwood (glennklockwood.com/garden/tpuv4) for the power of TPU v4. Google publishes none for v5e and v5p.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from ddlsim.devices.base import FLOPS_PER_VALUE, FORWARD_SHARE, StepWork
from ddlsim.devices.step_times import ModelWork, normal_draws
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import BITS_PER_BYTE, Count, UnitCount

BF16_BYTES = 2


@dataclass(frozen=True)
class GPU:
    """An accelerator.

    Args:
        peak_flops_per_s: operations per second, see above.
        memory_gb: memory, 10^9 bytes.
        watts: power limit, W; None: not published.
    """

    peak_flops_per_s: float
    memory_gb: float
    watts: float | None


# fmt: off
Name = Literal["v100_sxm", "a100_sxm", "a10", "h100_pcie", "h100_sxm", "h200_sxm", "b200_sxm", "l40s", "rtx_a6000",
               "rtx_3090", "rtx_4090", "tpu_v4", "tpu_v5e", "tpu_v5p"]
# fmt: on
GPUS: Mapping[Name, GPU] = {
    "v100_sxm": GPU(125e12, 32, 300.0),
    "a100_sxm": GPU(312e12, 80, 400.0),
    "a10": GPU(125e12, 24, 150.0),
    "h100_pcie": GPU(756e12, 80, 350.0),
    "h100_sxm": GPU(989e12, 80, 700.0),
    "h200_sxm": GPU(989e12, 141, 700.0),
    "b200_sxm": GPU(2250e12, 180, 1000.0),
    "l40s": GPU(362e12, 48, 350.0),
    "rtx_a6000": GPU(154.8e12, 48, 300.0),
    "rtx_3090": GPU(71e12, 24, 350.0),
    "rtx_4090": GPU(165.2e12, 24, 450.0),
    "tpu_v4": GPU(275e12, 32, 192.0),
    "tpu_v5e": GPU(197e12, 16, None),
    "tpu_v5p": GPU(459e12, 95, None),
}


@dataclass(frozen=True, kw_only=True)
class LanguageModel(ModelWork):
    """Every node trains a language model on one or several GPUs, in bfloat16 at a stated utilization.

    A step takes tokens x (6 x parameters + 12 x layers x width x context) operations; see docs/language_models.md.

    Args:
        device: GPU or TPU; its peak, memory, power and source are listed in docs/language_models.md.
        gpus_per_worker: GPUs of every node, which share its batch.
        utilization: model-FLOPs utilization, the share of the peak that training reaches.
        tokens_per_step: tokens of a node's local step, batch size x sequence length; null: training.batch_size times
            the length of the data's samples.
        layers: layers of a model that is only a size, for the operations of attention; null: attention is left out.
            Set layers, width and context together.
        width: features per token of these layers.
        context: tokens of a sequence.
        inner_gbps: bandwidth of each GPU to the others of its node, Gbit/s, for an all-reduce of gradients in every
            step; null: the utilization includes it.
        sigma: standard deviation of the logarithm of the nodes' step times; 0: all are equal.
    """

    device: Name = "h100_sxm"
    gpus_per_worker: Count = 1
    utilization: Annotated[float, Gt(0), Le(1)] = 0.4
    tokens_per_step: Count | None = None
    layers: Count | None = None
    width: UnitCount | None = None
    context: Count | None = None
    inner_gbps: Annotated[float, Gt(0)] | None = None
    sigma: Annotated[float, Ge(0), Le(10)] = 0.0

    counts_tokens: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shape = {"layers": self.layers, "width": self.width, "context": self.context}
        missing = [key for key, value in shape.items() if value is None]
        if 0 < len(missing) < len(shape):
            raise ScenarioError(f"{missing[0]}: expected layers, width and context together, got null. Set it.")

    @property
    def source(self) -> tuple[str | None, str]:
        count = f"{self.gpus_per_worker} x " if self.gpus_per_worker > 1 else ""
        return f"{count}{self.device} at {100 * self.utilization:g} %", "estimated"

    @property
    def watts(self) -> float | None:
        watts = GPUS[self.device].watts
        return None if watts is None else self.gpus_per_worker * watts

    def step_work(self, architecture: str, work: StepWork) -> StepWork:
        """Return the work on `tokens_per_step` tokens, with attention.

        Raises:
            ScenarioError: the tokens are unknown, or attention would count twice.
        """
        tokens = self.tokens_per_step or work.tokens
        if not tokens:
            text = "expected a number, because the data's samples are not sequences of tokens, got null"
            raise ScenarioError(f"devices.tokens_per_step: {text}. Set it to batch size x sequence length.")
        if work.counted and self.layers is not None:
            text = f"the operations of {architecture} are counted, attention included"
            raise ScenarioError(f"devices.layers: {text}. Leave out layers, width and context.")
        is_counted = work.counted and work.tokens > 0
        per_token = work.training_flops / work.tokens if is_counted else float(FLOPS_PER_VALUE * work.parameters)
        if self.layers is not None and self.width is not None and self.context is not None:
            per_token += 12.0 * self.layers * self.width * self.context
        flops = tokens * per_token
        forward_flops = flops * (work.forward_share if is_counted else FORWARD_SHARE)
        return replace(work, forward_flops=forward_flops, training_flops=flops, counted=is_counted, tokens=tokens)

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        gpu, size, count = GPUS[self.device], work.parameters, self.gpus_per_worker
        if 2 * BF16_BYTES * size > count * gpu.memory_gb * 1e9:
            least = math.ceil(2 * BF16_BYTES * size / (gpu.memory_gb * 1e9))
            text = (
                f"{architecture} has {size:.3g} parameters; they and their gradients take {4e-9 * size:.3g} GB in bf16"
            )
            got = f"{count} x {gpu.memory_gb:g} GB of {self.device}"
            raise ScenarioError(f"devices.gpus_per_worker: {text}, got {got}. Set at least {least}.")
        computing_s = work.training_flops / (count * gpu.peak_flops_per_s * self.utilization)
        if self.inner_gbps is None:
            return computing_s
        num_bytes = 2 * (count - 1) / count * BF16_BYTES * size
        return computing_s + num_bytes * BITS_PER_BYTE / (self.inner_gbps * 1e9)

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        return np.exp(self.sigma * normal_draws(num_nodes, seed)) if self.sigma else super().draw(num_nodes, seed)
