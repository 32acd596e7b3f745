"""Aggregation of received models: rules by name (scenario section `aggregation`), and the weights of plain averages.

A rule replaces the weighted average wherever an algorithm averages models of several nodes. To add one, write a frozen
dataclass (fields = YAML keys) that extends Aggregation (base.py), and add a line to this table.
"""

from ddlsim.foundation.registry import Registry

AGGREGATIONS = Registry(
    "aggregation",
    __name__,
    {
        "mean": ".base:Mean",
        "median": ".robust:Median",
        "trimmed_mean": ".robust:TrimmedMean",
        "bridge": ".robust:Bridge",
        "krum": ".robust:Krum",
        "multi_krum": ".robust:MultiKrum",
        "nearest_neighbor_mixing": ".clipping:NearestNeighborMixing",
        "geometric_median": ".robust:GeometricMedian",
        "clipped_gossip": ".clipping:ClippedGossip",
        "self_centered_clipping": ".clipping:SelfCenteredClipping",
        "cosine_clipping": ".clipping:CosineClipping",
    },
    contract=".base:Aggregation",
    aliases={
        "coordinate_median": "median",
        "rfa": "geometric_median",
        "nnm": "nearest_neighbor_mixing",
        "fltrust": "cosine_clipping",
        "average": "mean",
    },
)
