"""AG News: headlines and first sentences of four kinds of news, as ids of words.

Source: Zhang, Zhao and LeCun, "Character-level convolutional networks for text classification", NeurIPS 2015; its files
train.csv and test.csv (class, title, text), 120,000 and 7,600 rows. The vocabulary is counted on the training rows.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Dataset
from ddlsim.data.readers import damaged
from ddlsim.data.texts import vocabulary, word_ids, words
from ddlsim.units import Count

FOLDER = "ag_news"
FOLDERS = (FOLDER, "ag_news_csv")
"""The second is that of the authors' archive."""
URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/{}.csv"
CLASSES = ("1", "2", "3", "4")
MD5 = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}


@dataclass(frozen=True, kw_only=True)
class AgNews(DataSettings):
    """News by kind (world, sports, business, technology) as word ids; 120,000 + 7,600 texts, downloaded.

    Args:
        length: words per sample; longer texts are cut, shorter ones filled up from the left with id 0.
        vocabulary: ids in all; the most frequent words have one, id 1 stands for all others.
    """

    length: Count = 40
    vocabulary: Annotated[int, Ge(3)] = 10_000

    num_classes: ClassVar = 4
    sample_dtype: ClassVar = "int64"
    may_hold_images: ClassVar = False

    @property
    def image_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """See DataSettings."""
        return (self.length,)

    @property
    def num_tokens(self) -> int:  # type: ignore[override]
        """See DataSettings."""
        return self.vocabulary

    num_samples: ClassVar = (120_000, 7_600)

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing: if it is nowhere and did not come by download. DataDamaged: if it cannot be read.
        """
        wanted, why = [f"{folder}/train.csv" for folder in FOLDERS], None
        train = next(search.candidates(wanted), None)
        if train is None:
            why = search.fetch(_download)
            train = None if why else next(search.candidates(wanted), None)
        if train is None:
            layout = f"the folder {FOLDER}/ with train.csv and test.csv, lines of class 1 to 4, title, text."
            raise search.missing("ag_news", wanted, layout, why)
        splits = {"train": _read(train), "test": _read(train.with_name("test.csv"))}
        known = vocabulary(splits["train"][0], self.vocabulary)
        return Dataset(
            name="ag_news",
            train_images=word_ids(splits["train"][0], known, self.length),
            train_labels=splits["train"][1],
            test_images=word_ids(splits["test"][0], known, self.length),
            test_labels=splits["test"][1],
            num_classes=4,
            mean=np.zeros(1, np.float32),
            std=np.ones(1, np.float32),
            origin=str(train.parent),
            num_tokens=self.vocabulary,
        )


def _download(root: str) -> None:
    from torchvision.datasets.utils import download_url

    for split, digest in MD5.items():
        download_url(URL.format(split), str(Path(root) / FOLDER), f"{split}.csv", md5=digest)


def _read(path: Path) -> tuple[list[list[str]], np.ndarray]:
    """The words of each text, and its label."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            rows = [(lines.line_num, row) for row in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    wrong = next(((line, row) for line, row in rows if len(row) != 3 or row[0] not in CLASSES), None)
    if wrong or not rows:
        came = f"{wrong[1]!r:.80} in line {wrong[0]}" if wrong else "an empty file"
        raise damaged(path, f"expected lines of class (1 to 4), title, text, got {came}")
    return [words(f"{title} {text}") for _, (_, title, text) in rows], np.array([int(row[0]) - 1 for _, row in rows])
