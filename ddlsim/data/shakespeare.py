"""Shakespeare's plays for next-token prediction: each speaking role is a client, as in LEAF.

Source of the split: Caldas et al., "LEAF: a benchmark for federated settings", 2018, whose text is Project Gutenberg's
#100 of 1994. The package contains whole speeches of 16 roles of seven plays, about 4,000 characters each: public
domain, in the wording of the "tiny Shakespeare" text (Karpathy's char-rnn). `text: full` reads the plays of #100, and
downloads them if the network allows; `text: leaf` reads the files that LEAF's own preprocessing has written.

Differences from LEAF: by default a label at every position, and windows that do not overlap (`stride`), so that
evaluations see each character once; `predict: last` and `stride: 1` are LEAF's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import BadZipFile, ZipFile

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.data.dataset import Dataset, DataSettings
from ddlsim.data.search import DataSearch, damaged
from ddlsim.data.texts import NUM_CHARACTERS, Windows, character_ids, read_leaf, vocabulary, windows, word_ids, words
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count

EMBEDDED = Path(__file__).parent / "embedded" / "shakespeare-mini.txt"
URL = "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip"
FILES = ("shakespeare/100.txt", "shakespeare/1994-01-100.zip")
LEAST_CHARACTERS = 1000
"""Roles of the full text with fewer are left out."""

_HEADING = re.compile(r"== (.+)")
_SPEAKS = re.compile(r"^  ([A-Za-z][A-Za-z ]*)\. (.*)")
_GOES_ON = re.compile(r"^    (\S.*)")
_TITLE = re.compile(r"^by William Shakespeare\s*$", re.IGNORECASE)

Roles = Mapping[str, str]
"""Play and role -> speeches of the role, in order."""


@dataclass(frozen=True, kw_only=True)
class Shakespeare(DataSettings):
    """Speeches of roles in Shakespeare's plays, by character or word; the column `speaker` names the roles.

    The last part of each role's text is its test set.

    Args:
        text: mini: 16 roles inside the package; full: all plays (downloaded), roles of at least 1,000 characters; leaf:
            LEAF's folder data/ copied to shakespeare/ (train/*.json, test/*.json), with its split and stride.
        unit: characters, of LEAF's alphabet; words, of the training texts' vocabulary.
        vocabulary: number of ids, for words; the most frequent words have one.
        length: characters (or words) per sample.
        stride: from one sample to the next of a role; null: length, so that samples do not overlap.
        predict: each: the next one after every position; last: after the last one; speaker: the role (a
            classification).
        test_fraction: of each role's text, above 0 and below 1.
    """

    text: Literal["mini", "full", "leaf"] = "mini"
    unit: Literal["characters", "words"] = "characters"
    vocabulary: Annotated[int, Ge(3)] = 2000
    length: Count = 80
    stride: Count | None = None
    predict: Literal["each", "last", "speaker"] = "each"
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2

    sample_dtype = "int64"
    may_hold_images = False

    def __post_init__(self) -> None:
        if self.text == "leaf" and (self.unit != "characters" or self.stride is not None or self.test_fraction != 0.2):
            raise ScenarioError("text: leaf fixes unit, stride and test_fraction. Leave them out, or use text: full.")

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.unit == "characters":
            yield "vocabulary", "unit is characters"

    @property
    def overlap(self) -> str | None:
        if self.text == "leaf":
            return "the windows of LEAF's files begin one character after the other"
        if self.stride is not None and self.stride < self.length:
            return f"data.stride {self.stride} is below data.length {self.length}"
        return None

    @property
    def num_tokens(self) -> int:
        return NUM_CHARACTERS if self.unit == "characters" else self.vocabulary

    @property
    def task(self) -> str:
        return "classification" if self.predict == "speaker" else "next_token"

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the full text is neither found nor downloaded. DataDamaged: if it cannot be read.
            ScenarioError: if no role has enough text for a sample of this length on either side.
        """
        by_split, origin = self._of_leaf(search) if self.text == "leaf" else self._of_plays(search)
        speakers = list(by_split["train"])
        parts = {split: list(own.values()) for split, own in by_split.items()}
        columns = {split: np.repeat(speakers, [len(samples) for samples, _ in own]) for split, own in parts.items()}
        splits = {}
        for split, own in parts.items():
            labels = np.concatenate([own_labels for _, own_labels in own])
            if self.predict == "speaker":
                labels = np.repeat(np.arange(len(speakers)), [len(samples) for samples, _ in own])
            splits[split] = np.concatenate([x for x, _ in own]), labels
        classes = len(speakers) if self.predict == "speaker" else self.num_tokens
        keys: dict[str, Any] = {"task": self.task, "columns": {"speaker": columns}, "num_tokens": self.num_tokens}
        return Dataset.of_splits("shakespeare", origin, splits, classes, **keys)

    def _of_plays(self, search: DataSearch) -> tuple[dict[str, Windows], str]:
        """Training and test windows of the roles that have some of both, and the origin of the text."""
        roles, origin = self._roles(search)
        stride = self.stride or self.length
        by_split: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {"train": {}, "test": {}}
        for role, ids in self._ids(roles).items():
            cut = len(ids) - round(self.test_fraction * len(ids))
            found = {
                "train": windows(ids[:cut], self.length, stride, self.predict == "each"),
                "test": windows(ids[cut:], self.length, stride, self.predict == "each"),
            }
            if all(len(samples) for samples, _ in found.values()):
                for split, pair in found.items():
                    by_split[split][role] = pair
        if not by_split["train"]:
            text = f"no role has text for a training and a test sample of {self.length} {self.unit}"
            raise ScenarioError(f"data.length: {text}. Lower it, or raise data.test_fraction.")
        return {**by_split}, origin

    def _of_leaf(self, search: DataSearch) -> tuple[dict[str, Windows], str]:
        """The same of LEAF's files."""
        wanted = ["shakespeare/train", "shakespeare/data/train"]
        layout = (
            "run LEAF's data/shakespeare/preprocess.sh -s niid --sf 1.0 -k 0 -t sample, and put its folder data/ "
            "(train/*.json, test/*.json) as shakespeare/ there."
        )
        path = search.obtain("shakespeare", wanted, layout)
        by_split = read_leaf(path.parent, self.length)
        if self.predict == "each":
            by_split = {split: {user: _each(*own) for user, own in users.items()} for split, users in by_split.items()}
        return by_split, str(path.parent)

    def _ids(self, roles: Roles) -> dict[str, np.ndarray]:
        """Return the speeches of roles as ids of characters or words, int64 [length]."""
        if self.unit == "characters":
            return {role: character_ids(text) for role, text in roles.items()}
        said = {role: words(text) for role, text in roles.items()}
        train = (own[: len(own) - round(self.test_fraction * len(own))] for own in said.values())
        known = vocabulary(train, self.vocabulary)
        return {role: word_ids([own], known, len(own))[0] for role, own in said.items()}

    def _roles(self, search: DataSearch) -> tuple[Roles, str]:
        if self.text == "mini":
            return _of_excerpt(EMBEDDED.read_text(encoding="utf-8")), "inside the package"
        layout = f"100.txt, Project Gutenberg's #100 of 1994, or the archive that holds it ({URL})."
        path = search.obtain("shakespeare", FILES, layout, _download)
        roles = roles_of_gutenberg(_read(path))
        if not roles:
            raise damaged(path, "it has no plays with speaking roles in the layout of #100 of 1994")
        return roles, str(path)


def _each(samples: np.ndarray, following: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows [n, T] with the next id after each position, [n, T], of windows with the last one, [n]."""
    return samples, np.concatenate([samples[:, 1:], following[:, None]], axis=1)


def _download(root: str) -> None:
    from torchvision.datasets.utils import download_url

    download_url(URL, str(Path(root) / "shakespeare"))


def _read(path: Path) -> str:
    try:
        if path.suffix != ".zip":
            return path.read_text(encoding="latin-1")
        with ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.lower().endswith(".txt"))
            return archive.read(name).decode("latin-1")
    except (OSError, BadZipFile, StopIteration) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error


def _of_excerpt(text: str) -> Roles:
    """Return the roles of the text inside the package: a line `== play / ROLE`, followed by the role's speeches."""
    pieces = _HEADING.split(text)
    return {role: said.strip() + "\n" for role, said in zip(pieces[1::2], pieces[2::2], strict=True)}


def roles_of_gutenberg(text: str) -> Roles:
    """Return the roles of Project Gutenberg's #100 of 1994.

    A play starts with its title, some lines above `by William Shakespeare`; a speech starts with two spaces, the role,
    a dot; its further lines start with four. Lines of other kinds (stage directions, notes of the publisher) belong to
    no role.
    """
    found: dict[str, list[str]] = {}
    title, role = "", ""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _TITLE.match(line.strip()):
            above = [each.strip() for each in lines[max(0, number - 6) : number] if each.strip()]
            title, role = (above[-1].title() if above else ""), ""
            continue
        speaks, goes_on = _SPEAKS.match(line), _GOES_ON.match(line)
        if title and speaks:
            role = f"{title} / {speaks[1].upper()}"
            found.setdefault(role, []).append(speaks[2])
        elif role and goes_on:
            found[role].append(goes_on[1])
        elif not line.strip():
            role = ""
    texts = {role: "\n".join(said) + "\n" for role, said in found.items()}
    return {role: said for role, said in texts.items() if len(said) >= LEAST_CHARACTERS}
