"""The scenario's sections `privacy` and `secure_aggregation`."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.scenario.section import Section
from ddlsim.units import END_OF_TIME_S


class Privacy(Section):
    """Differential privacy by the Gaussian mechanism; null: none. Epsilon per node is recorded at every evaluation.

    Args:
        kind: message: all parameters that a node sends are clipped and noised, which protects its whole data from all
            others (local DP); dp_sgd: gradients of single samples are, in local training, which protects each sample.
        clip: L2 norm that an update (message) or the gradient of a sample (dp_sgd) is scaled down to.
        noise_multiplier: standard deviation of the noise over `clip`; 0: none, and no guarantee.
        delta: of (epsilon, delta).
        accountant: of Opacus; rdp: an upper bound, quick; prv: numerical, tighter.
        clips: of messages, what is clipped. update: parameters minus what was last sent in their place, at first minus
            the node's first model; model: the parameters themselves.
        adjacency: of messages, what an observer cannot distinguish. replace: any two data sets of a node, sensitivity 2
            clip; zero_out: a node's update and a zero update (of a node that still merges and sends), sensitivity clip.
    """

    kind: Literal["message", "dp_sgd"] = "message"
    clip: Annotated[float, Gt(0), Lt(1e30)]
    noise_multiplier: Annotated[float, Ge(0), Lt(1e30)]
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5
    accountant: Literal["rdp", "prv"] = "rdp"
    clips: Literal["update", "model"] = "update"
    adjacency: Literal["replace", "zero_out"] = "replace"

    @property
    def noise_of_message(self) -> float:
        """Standard deviation of a message's noise over its sensitivity."""
        return self.noise_multiplier / (2 if self.adjacency == "replace" else 1)


class SecureAggregation(Section):
    """What it costs that an aggregator learns the sum of its users' models alone; null: models travel in the clear.

    Args:
        protocol: bonawitz2017: Bonawitz et al., CCS 2017, against honest but curious nodes.
        threshold: t, how many users must be left after every stage: a number from 2, or a share of the users of an
            aggregator, below 1, rounded down, plus 1. Fewer make no sum. Who is away counts as a user, who has stopped
            early does not.
        value_bits: of a value of a model as an integer, log2 R_U in the paper, whose examples have 16; sums themselves
            are computed in float32.
        key_bytes: of a public key, a_K in the paper: 256 bits.
        share_bytes: of a share of a secret, a_S in the paper: 256 bits.
        encryption_bytes: that are added to two encrypted shares, which the paper does not count; 28 with AES-GCM.
        stage_timeout_s: a stage closes this many simulated seconds after it began, and who has not answered drops out;
            null: it takes as long as its messages do. The first begins when the aggregator starts to wait.
    """

    protocol: Literal["bonawitz2017"] = "bonawitz2017"
    threshold: Annotated[int, Ge(2)] | Annotated[float, Gt(0), Lt(1)] = 2 / 3
    value_bits: Annotated[int, Ge(1), Le(64)] = 32
    key_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    share_bytes: Annotated[int, Ge(1), Lt(2**20)] = 32
    encryption_bytes: Annotated[int, Ge(0), Lt(2**20)] = 0
    stage_timeout_s: Annotated[float, Gt(0), Lt(END_OF_TIME_S)] | None = None
