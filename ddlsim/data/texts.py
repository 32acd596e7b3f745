"""Texts as token ids: characters of a fixed alphabet, or words of a vocabulary; sequences with their next tokens.

Files of LEAF's Shakespeare, in the format of its preprocessing, hold users (speaking roles), windows and next
characters.

Source: Caldas et al., "LEAF: a benchmark for federated settings", 2018: data/train/*.json and data/test/*.json, each
{"users": [...], "num_samples": [...], "user_data": {user: {"x": [80 characters, ...], "y": [the next one, ...]}}}.

AG News: headlines and first sentences of four kinds of news, as ids of words.

Source: Zhang, Zhao and LeCun, "Character-level convolutional networks for text classification", NeurIPS 2015; its files
train.csv and test.csv (class, title, text), 120,000 and 7,600 rows. The vocabulary is counted on the training rows.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Len
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ddlsim.data.dataset import Dataset, DataSettings, Pair
from ddlsim.data.search import DataSearch, damaged
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataMissing, ScenarioError, listing
from ddlsim.foundation.units import Count

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare (Caldas et al., 2018), in their order; other characters have the next id."""

NUM_CHARACTERS = len(ALPHABET) + 1
"""With the id of all other characters."""

PADDING, UNKNOWN = 0, 1
"""Ids of words: what fills a short text from the left, and words outside the vocabulary."""

_IDS = np.full(256, len(ALPHABET), np.int64)
_IDS[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def character_ids(text: str) -> np.ndarray:
    """A text as ids of its characters, int64 [length]."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.where(points < len(_IDS), _IDS[np.minimum(points, len(_IDS) - 1)], len(ALPHABET))


def windows(ids: np.ndarray, length: int, stride: int, each: bool) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of one text, and what follows them.

    Args:
        ids: int64 [L].
        length: T, of each sequence.
        stride: from the start of one to the start of the next.
        each: whether every position has a label, or only the last one.
    Returns:
        Sequences [n, T] and labels: the next id after each position [n, T], or after the last one [n]; n is 0 of a text
        that is not longer than T.
    """
    starts = np.arange(0, max(0, len(ids) - length), stride)
    at = starts[:, None] + np.arange(length + 1)
    whole = ids[at]
    return whole[:, :-1], whole[:, 1:] if each else whole[:, -1]


def encoder(tokenizer: str | None, download: bool) -> tuple[Callable[[str], Sequence[int]], int]:
    """Return what makes the ids of a text, and the number of ids.

    Args:
        tokenizer: a file tokenizer.json, or a name of Hugging Face's hub; None: bytes.
        download: whether the hub may be asked.
    Raises:
        DataMissing: the tokenizer is not available, or `tokenizers` not installed.
    """
    if tokenizer is None:
        return str.encode, 256
    tokenizers = needed("tokenizers", "hf", "data.tokenizer")
    try:
        path = Path(tokenizer).expanduser()
        if not path.is_file():
            hub = needed("huggingface_hub", "hf", "data.tokenizer")
            path = hub.hf_hub_download(tokenizer, "tokenizer.json", local_files_only=not download)
        found = tokenizers.Tokenizer.from_file(str(path))
    except DataMissing:
        raise
    except Exception as error:
        text = f"expected a file tokenizer.json or a name of the hub, got {tokenizer}"
        raise DataMissing(f"data.tokenizer: {text}: {' '.join(str(error).split()):.200}") from error
    return lambda text: found.encode(text).ids, found.get_vocab_size()


def words(text: str) -> list[str]:
    """The words of a text in small letters; digits count, punctuation does not."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """The most frequent words with their ids from 2 (equally frequent ones in the order of the alphabet).

    Args:
        texts: of words.
        size: of ids in all, PADDING and UNKNOWN counted.
    """
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - 2], start=2)}


def word_ids(texts: Sequence[Sequence[str]], known: dict[str, int], length: int) -> np.ndarray:
    """The first words of texts as ids, filled up from the left, int64 [n, length]."""
    found = np.full((len(texts), length), PADDING, np.int64)
    for row, text in zip(found, texts, strict=True):
        ids = [known.get(word, UNKNOWN) for word in text[:length]]
        if ids:
            row[-len(ids) :] = ids
    return found


Windows = Mapping[str, Pair]
"""User -> ids of characters int64 [n, T], and of the next characters, int64 [n]."""


def read_leaf(folder: Path, length: int) -> dict[str, Windows]:
    """Training and test windows of the users that have some of both, from all files of the two folders.

    Args:
        folder: with train/*.json and test/*.json.
        length: requested characters per window.
    Raises:
        DataDamaged: if a file is missing or not in this layout.
        ScenarioError: if windows have another length.
    """
    found = {split: _of_files(folder / split, length) for split in ("train", "test")}
    users = [user for user in found["train"] if user in found["test"]]
    if not users:
        raise damaged(folder, "no user has samples in train/ and in test/. LEAF's split by user (-t user) has none")
    return {split: {user: own[user] for user in users} for split, own in found.items()}


def _of_files(folder: Path, length: int) -> Windows:
    files = sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))  # as macOS leaves
    if not files:
        raise damaged(folder, "expected LEAF's JSON files in it, found none")
    texts: dict[str, list[str]] = {}
    following: dict[str, list[str]] = {}
    for path in files:
        for user, own in _users(path).items():  # a user may occur in several files
            wrong = next((text for text in own["x"] if len(text) != length), None)
            if wrong is not None:
                size = len(wrong)
                raise ScenarioError(f"data.length: expected {size}, as in {path}, got {length}. Change it.")
            if len(own["x"]) != len(own["y"]):
                raise damaged(path, f"user {user}: expected as many entries of x as of y")
            if own["x"]:
                texts.setdefault(user, []).extend(own["x"])
                following.setdefault(user, []).extend(own["y"])
    return {
        user: (character_ids("".join(own)).reshape(-1, length), character_ids("".join(following[user])))
        for user, own in texts.items()
    }


class LeafUser(TypedDict):
    """Windows of one user of LEAF, and the character that follows each."""

    x: list[str]
    y: list[Annotated[str, Len(1, 1)]]


class LeafFile(TypedDict):
    """A file of LEAF: user -> windows; further keys are ignored."""

    user_data: dict[str, LeafUser]


def _users(path: Path) -> dict[str, LeafUser]:
    """Return the users of one file."""
    try:
        return TypeAdapter(LeafFile).validate_json(path.read_bytes())["user_data"]
    except OSError as error:
        raise damaged(path, str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise damaged(path, f"expected user_data: {{user: {{x, y}}}} of LEAF: {place}: {first['msg']}") from error


FOLDERS = ("ag_news", "ag_news_csv")
"""Possible folders; the second is from the authors' archive."""
AG_NEWS_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/{}.csv"
CLASSES = ("1", "2", "3", "4")
MD5 = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}


@dataclass(frozen=True, kw_only=True)
class AgNews(DataSettings):
    """News by kind (world, sports, business, technology) as word ids; 120,000 + 7,600 texts, downloaded.

    Args:
        length: words per sample; longer texts are cut, shorter ones filled up from the left with id 0.
        vocabulary: number of ids; the most frequent words have one, id 1 is for all others.
    """

    length: Count = 40
    vocabulary: Annotated[int, Ge(3)] = 10_000

    num_classes, num_samples = 4, (120_000, 7_600)
    sample_dtype = "int64"
    may_hold_images = False

    @property
    def image_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def num_tokens(self) -> int:
        return self.vocabulary

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if it is neither found nor downloaded. DataDamaged: if it cannot be read.
        """
        layout = f"the folder {FOLDERS[0]}/ with train.csv and test.csv, lines of class 1 to 4, title, text."
        train = search.obtain("ag_news", [f"{folder}/train.csv" for folder in FOLDERS], layout, _download)
        texts = {"train": _read(train), "test": _read(train.with_name("test.csv"))}
        known = vocabulary(texts["train"][0], self.vocabulary)
        splits = {split: (word_ids(words, known, self.length), labels) for split, (words, labels) in texts.items()}
        return Dataset.of_splits("ag_news", str(train.parent), splits, 4, num_tokens=self.vocabulary)


def _download(root: str) -> None:
    from torchvision.datasets.utils import download_url

    for split, digest in MD5.items():
        download_url(AG_NEWS_URL.format(split), str(Path(root) / FOLDERS[0]), f"{split}.csv", md5=digest)


def _read(path: Path) -> tuple[list[list[str]], np.ndarray]:
    """The words of each text, and its label."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            rows = [(lines.line_num, row) for row in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    wrong = [f"{row!r:.80} in line {line}" for line, row in rows if len(row) != 3 or row[0] not in CLASSES]
    if wrong or not rows:
        raise damaged(path, f"expected lines of class (1 to 4), title, text, got {listing(wrong, 1) or 'none'}")
    return [words(f"{title} {text}") for _, (_, title, text) in rows], np.array([int(row[0]) - 1 for _, row in rows])
