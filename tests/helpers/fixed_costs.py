"""Costs that each run of a process has are paid once: the embedded data is decompressed, and installed packages are
searched for versions.
"""

from functools import cache


def pay_once() -> None:
    """Cache the data that every run reads, until the process ends."""
    from ddlsim.data import torchvision_sets
    from ddlsim.runs.cluster import cluster

    read = cache(torchvision_sets.read_keras_npz)
    torchvision_sets.read_keras_npz = lambda path: {
        split: (samples.copy(), labels.copy()) for split, (samples, labels) in read(path).items()
    }
    cluster.version_of = cache(cluster.version_of)
