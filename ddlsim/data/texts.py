"""Texts as token ids: characters of a fixed alphabet, or words of a vocabulary; sequences with what comes next."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare (Caldas et al., 2018), in their order; others have the id behind them."""

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
