"""Make ddlsim/data/embedded/fashion-mnist-mini.npz from Fashion-MNIST, which torchvision downloads if it is absent.

    python tools/make_fashion_mnist_mini.py ~/.cache/ddlsim

It contains the first 1,000 training and 200 test images of each class, in the original order. The same input
gives the same arrays on every machine.
"""

import argparse
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np

from ddlsim.data import DataSearch
from ddlsim.data.torchvision_sets import EMBEDDED, FashionMnist

TRAIN_PER_CLASS, TEST_PER_CLASS = 1000, 200
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """Return the indices [classes * count] of the first `count` samples of each class, ascending."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder that contains FashionMNIST/raw")
    folder = parser.parse_args().folder
    full = FashionMnist().load(DataSearch(folder))
    train = first_of_each_class(full.train_labels, TRAIN_PER_CLASS)
    test = first_of_each_class(full.test_labels, TEST_PER_CLASS)
    arrays = {
        "x_train": full.train_images[train, :, :, 0],
        "y_train": full.train_labels[train].astype(np.uint8),
        "x_test": full.test_images[test, :, :, 0],
        "y_test": full.test_labels[test].astype(np.uint8),
    }
    with zipfile.ZipFile(EMBEDDED, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, array in arrays.items():
            content = BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", ZIP_EPOCH)  # no time of day, so the same bytes each time
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content.getvalue(), compresslevel=9)
    print(f"{EMBEDDED}: {EMBEDDED.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
