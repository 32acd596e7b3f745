"""The scenario's section `privacy`."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from ddlsim.scenario.section import Section


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
        adjacency: of messages, what is not to be told apart. replace: any two data sets of a node, sensitivity 2 clip;
            zero_out: its data set and none, whose update is 0, sensitivity clip.
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
