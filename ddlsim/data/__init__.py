"""Data sets, partitions of the samples over nodes, and shifts of a cluster's samples, each by name.

A new one needs a frozen dataclass (fields = YAML keys) that offers `load` (data set; `generate` if it is made from the
seed), `assign` (partition) or `apply` (shift), and a line in the table. Only numpy is imported here; functions import
torchvision and Pillow if they need them.
"""

from ddlsim.data.arrays import Arrays
from ddlsim.data.dataset import Dataset
from ddlsim.data.search import DataSearch
from ddlsim.foundation.registry import Registry

DATASETS = Registry(
    "dataset",
    __name__,
    {
        "fashion-mnist-mini": ".torchvision_sets:FashionMnistMini",
        "fashion-mnist": ".torchvision_sets:FashionMnist",
        "mnist": ".torchvision_sets:Mnist",
        "cifar10": ".torchvision_sets:Cifar10",
        "cifar100": ".torchvision_sets:Cifar100",
        "imagenette": ".images:Imagenette",
        "image-folder": ".images:ImageFolder",
        "torchvision": ".torchvision_sets:Torchvision",
        "npz": ".arrays:Npz",
        "hf": ".hugging_face:HuggingFace",
        "arrays": ".arrays:Arrays",
        "joined": ".derived:Joined",
        "synthetic_regression": ".derived:SyntheticRegression",
        "shakespeare": ".shakespeare:Shakespeare",
        "ag_news": ".texts:AgNews",
        "table": ".table:Table",
        "heart_disease": ".table:HeartDisease",
        "attributes": ".derived:Attributes",
    },
    contract=".dataset:DataSettings",
)

PARTITIONS = Registry(
    "partition",
    __name__,
    {
        "random": ".partitions:Random",
        "uniform": ".partitions:Uniform",
        "dirichlet": ".partitions:Dirichlet",
        "shards": ".partitions:Shards",
        "label_clusters": ".cluster_partitions:LabelClusters",
        "quantity_skew": ".partitions:QuantitySkew",
        "domains": ".cluster_partitions:Domains",
        "class_clusters": ".cluster_partitions:ClassClusters",
        "by_column": ".fixed_partitions:ByColumn",
        "file": ".fixed_partitions:FromFile",
    },
    contract=".partitions:Partition",
    aliases={"iid": "random", "shard": "shards", "natural": "by_column", "natural_id": "by_column"},
)

SHIFTS = Registry(
    "shift",
    __name__,
    {
        "none": ".shifts:NoShift",
        "rotate": ".shifts:Rotate",
        "label_swap": ".shifts:LabelSwap",
        "label_shift": ".shifts:LabelShift",
        "color": ".shifts:Color",
    },
    contract=".shifts:Shift",
)

__all__ = ["DATASETS", "PARTITIONS", "SHIFTS", "Arrays", "DataSearch", "Dataset"]
