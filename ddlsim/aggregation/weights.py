"""What a model weighs in a merge, by name.

Sources: McMahan et al., AISTATS 2017 (FedAvg: by number of samples); Hagander, Listo Zec et al., "On the effects of
similarity metrics in decentralized deep learning under distributional shift", algorithm 1 line 7 (FedSim: by
similarity). A node's own model weighs, under FedSim, as much as the heaviest of the others.
"""

from collections.abc import Mapping
from typing import Literal

MergeName = Literal["fedavg", "fedsim", "uniform"]


def weights(
    name: MergeName, own: int, samples: Mapping[int, int], scores: Mapping[int, float] | None = None
) -> dict[int, float]:
    """What each model weighs; the weights sum to 1.

    Args:
        name: `fedavg` (by number of samples), `fedsim` (by score), `uniform`.
        own: the merging node.
        samples: training samples of the node itself and of every node whose model is merged.
        scores: of every such node but itself, for `fedsim`; negative ones count as 0, and if none is above 0 all models
            weigh the same.

    Returns:
        Node id -> weight.
    """
    raw: Mapping[int, float] = dict.fromkeys(samples, 1.0)
    if name == "fedavg":
        raw = samples
    elif name == "fedsim" and scores:
        positive = {peer: max(0.0, score) for peer, score in scores.items()}
        heaviest = max(positive.values())
        if heaviest > 0:
            raw = positive | {own: heaviest}
    total = sum(raw.values())
    return {peer: raw[peer] / total for peer in samples}
