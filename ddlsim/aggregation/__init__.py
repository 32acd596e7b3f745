"""What received models become: rules by name (scenario section `aggregation`), and the weights of plain averages.

A rule takes the place of the weighted average wherever an algorithm averages models of several nodes. To add one: a
frozen dataclass (fields = YAML keys) that extends Aggregation (base.py), and a line in this table.
"""

from ddlsim.registry import Registry

AGGREGATIONS = Registry(
    "aggregation",
    __name__,
    {
        "mean": ".mean:Mean",
        "median": ".coordinates:Median",
        "trimmed_mean": ".coordinates:TrimmedMean",
        "bridge": ".coordinates:Bridge",
        "krum": ".krum:Krum",
        "multi_krum": ".krum:MultiKrum",
        "nearest_neighbor_mixing": ".neighbor_mixing:NearestNeighborMixing",
        "geometric_median": ".geometric_median:GeometricMedian",
        "clipped_gossip": ".clipping:ClippedGossip",
        "self_centered_clipping": ".clipping:SelfCenteredClipping",
        "cosine_clipping": ".cosine_clipping:CosineClipping",
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
