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
        "median": ".rules:Median",
        "trimmed_mean": ".rules:TrimmedMean",
        "bridge": ".rules:Bridge",
        "krum": ".rules:Krum",
        "multi_krum": ".rules:MultiKrum",
        "nearest_neighbor_mixing": ".rules:NearestNeighborMixing",
        "geometric_median": ".rules:GeometricMedian",
        "clipped_gossip": ".rules:ClippedGossip",
        "self_centered_clipping": ".rules:SelfCenteredClipping",
        "cosine_clipping": ".rules:CosineClipping",
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
