"""The Gaussian mechanism on every message: parameters are clipped and noised before sending.

Local differential privacy, in which a node trusts no other, as the baseline of Cyffers, Bellet, "Privacy Amplification
by Decentralization" (AISTATS 2022) and of Cyffers, Even, Bellet, Massoulie, "Muffliato" (NeurIPS 2022); no
amplification by decentralization is claimed here. A node sends

    s_t = s_(t-1) + min(1, clip / |x_t - s_(t-1)|) (x_t - s_(t-1)) + N(0, (noise_multiplier clip)^2)

for the parameters x_t of one place in a payload, where s_(t-1) was sent in that place before: the receivers know it, so
only the update is new. The first s is a model that the node drew at its start, which contains no information on data,
or zero if the node drew no such model. With `clips: model` it is always zero. Parameters that are sent again, to
another peer or in another answer, are released once.

Numbers, arrays and losses in a payload are sent unchanged; epsilon does not cover them.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import FLOAT32_BYTES
from ddlsim.network.messages.compression import Encoded
from ddlsim.network.messages.encoder import ParameterPart, Parameters, Path, Payload, is_parameters, walk

if TYPE_CHECKING:
    from torch import Tensor


CLIP_EPSILON = 1e-12
"""Added to a norm before division."""


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    """The mechanism as a Codec (compression.py) that saves no bytes.

    Args:
        clip: maximum L2 norm of an update.
        noise_multiplier: standard deviation of the noise of each value over `clip`.
        keeps_copies: whether the preceding release is subtracted; otherwise the whole model is clipped.
    """

    clip: float
    noise_multiplier: float
    keeps_copies: bool

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return FLOAT32_BYTES * sum(sizes)

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        import torch

        new = values if copies is None else values - copies
        scale = (self.clip / (new.norm(dim=1, keepdim=True) + CLIP_EPSILON)).clamp(max=1.0)
        noise = np.stack([stream(seed, "gaussian mechanism").standard_normal(new.shape[1]) for seed in seeds])
        std = self.noise_multiplier * self.clip
        return (scale * new + std * torch.from_numpy(noise).to(new),)

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        return encoded[0] if copies is None else copies + encoded[0]


@dataclass(eq=False)
class PrivateSender:
    """Releases of one node.

    Args:
        clip, noise_multiplier: see GaussianMechanism.
        updates: whether updates are clipped, instead of the parameters themselves.
        compress: (mechanism, params, preceding release, seed) -> release; see learning/learner.py.
        draw_seed: returns a random integer for each release.
        on_release: called at each use of the mechanism.
    """

    clip: float
    noise_multiplier: float
    updates: bool
    compress: Callable[..., Any]
    draw_seed: Callable[[], int]
    on_release: Callable[[], None]

    def __post_init__(self) -> None:
        self._whole, self._update = (
            GaussianMechanism(clip=self.clip, noise_multiplier=self.noise_multiplier, keeps_copies=keeps_copies)
            for keeps_copies in (False, True)
        )
        self._starts: dict[ParameterPart, Parameters] = {}
        self._sent: dict[Hashable, tuple[int, Parameters]] = {}  # place -> (serial of its source, release)

    def starts_with(self, models: Sequence[Sequence[Parameters]]) -> None:
        """Register models that the node has drawn, without information on data; the first of each kind counts."""
        for params in (params for model in models for params in model if self.updates and is_parameters(params)):
            self._starts.setdefault(params.part, params)

    def protect(self, payload: Payload) -> Payload:
        """Return the payload with released parameters."""

        def release(leaf: Any, path: Path) -> Any:
            return self._release(leaf, path) if is_parameters(leaf) else leaf

        return walk(payload, release)

    def forget(self) -> None:
        """Forget all releases, because the node has lost its state; it starts from the models that it draws next."""
        self._sent.clear()
        self._starts.clear()

    def _release(self, params: Parameters, path: Path) -> Parameters:
        place = (path, params.part)
        source, sent = self._sent.get(place, (None, self._starts.get(params.part)))
        if source == params.serial and sent is not None:
            return sent
        mechanism = self._update if self.updates and sent is not None else self._whole
        sent = self.compress(mechanism, params, sent if mechanism.keeps_copies else None, self.draw_seed())
        self._sent[place] = params.serial, sent
        self.on_release()
        return sent
