"""Files of LEAF's Shakespeare, as its preprocessing writes them: users (speaking roles), windows and next characters.

Source: Caldas et al., "LEAF: a benchmark for federated settings", 2018: data/train/*.json and data/test/*.json, each
{"users": [...], "num_samples": [...], "user_data": {user: {"x": [80 characters, ...], "y": [the next one, ...]}}}.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ddlsim.data.readers import damaged
from ddlsim.data.texts import character_ids
from ddlsim.errors import ScenarioError

Windows = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""User -> ids of characters int64 [n, T], and of those that follow, int64 [n]."""


def read_leaf(folder: Path, length: int) -> dict[str, Windows]:
    """Training and test windows of the users that have some of both, from all files of the two folders.

    Args:
        folder: with train/*.json and test/*.json.
        length: characters per window that the scenario asks for.
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
    pieces: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}  # a user may stand in several files
    for path in files:
        for user, (texts, following) in _texts(path).items():
            wrong = next((text for text in texts if len(text) != length), None)
            if wrong is not None:
                raise ScenarioError(
                    f"data.length: {path} has windows of {len(wrong)} characters (user {user}), data.length is "
                    f"{length}. Set data.length: {len(wrong)}."
                )
            own = character_ids("".join(texts)).reshape(-1, length), character_ids("".join(following))
            pieces.setdefault(user, []).append(own)
    return {user: tuple(map(np.concatenate, zip(*own, strict=True))) for user, own in pieces.items()}


def _texts(path: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Windows and next characters of the users of one file that have some."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    users = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(users, dict):
        raise damaged(path, 'expected LEAF\'s layout, {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}')
    return {user: _pair(path, user, own) for user, own in users.items() if own != {"x": [], "y": []}}


def _pair(path: Path, user: str, own: Any) -> tuple[list[str], list[str]]:
    texts, following = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
    if not (_of_strings(texts) and _of_strings(following)) or len(texts) != len(following):
        raise damaged(path, f"user {user}: expected x, a list of texts, and y, as many characters, got {_what(own)}")
    wrong = next((each for each in following if len(each) != 1), None)
    if wrong is not None:
        raise damaged(path, f"user {user}: expected one character for each entry of y, got {wrong!r:.40}")
    return texts, following


def _of_strings(values: Any) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _what(own: Any) -> str:
    if not isinstance(own, dict):
        return type(own).__name__
    sizes = (
        f"{key}: {type(value).__name__} of {len(value)}" for key, value in own.items() if hasattr(value, "__len__")
    )
    return ", ".join(sizes) or "nothing"
