"""Find the files of scenarios, sweeps and matrices by their paths or bare names."""

import re
from collections.abc import Iterator
from pathlib import Path

from ddlsim.foundation.errors import ScenarioError, did_you_mean

PACKAGE_DIR = Path(__file__).resolve().parent.parent


def folders() -> Iterator[Path]:
    """Yield the folders for bare names: ./scenarios, the package's scenarios, the source tree's scenarios."""
    seen = set()
    source_tree = PACKAGE_DIR.parent if (PACKAGE_DIR.parent / "pyproject.toml").is_file() else Path()
    for folder in (Path("scenarios"), PACKAGE_DIR / "_scenarios", source_tree / "scenarios"):
        if folder.is_dir() and folder.resolve() not in seen:
            seen.add(folder.resolve())
            yield folder


def by_name(matrices: bool = False) -> dict[str, Path]:
    """Return bare name -> file of all scenarios, without the files below base/, which other files extend.

    Args:
        matrices: whether to return the matrices for `ddlsim reproduce` instead.
    """
    found: dict[str, Path] = {}
    for folder in folders():
        for file in sorted(folder.rglob("*.yaml")):
            if "base" not in file.relative_to(folder).parts[:-1] and is_matrix(file) == matrices:
                found.setdefault(file.stem, file)
    return found


def is_matrix(file: Path) -> bool:
    """Whether a file holds several scenarios: a published table or a sweep."""
    return bool(_table_keys(file) & {"cells", "axes"})


def is_sweep(file: Path) -> bool:
    """Whether a file holds a sweep: `axes` or `cells`, without a published `source`."""
    return is_matrix(file) and "source" not in _table_keys(file)


def _table_keys(file: Path) -> set[str]:
    try:
        return set(re.findall(r"^(cells|axes|source):", file.read_text(encoding="utf-8"), re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        return set()


def find(path: str | Path, matrices: bool = False) -> Path:
    """Return the file of a path or a bare name.

    Args:
        path: path or bare name.
        matrices: whether a bare name is that of a matrix for `ddlsim reproduce` instead of a scenario.
    Raises:
        ScenarioError: the file does not exist.
    """
    file = Path(path)
    if file.is_file():
        return file
    text = str(path)
    known = by_name(matrices)
    name = text.removesuffix(".yaml")
    if name in known:
        return known[name]
    for folder in folders():
        for inside in (folder / text, folder / f"{text}.yaml"):
            if inside.is_file():
                return inside
    kind = "matrix" if matrices else "scenario"
    what = "is a folder, expected a file" if file.is_dir() else f"no such file, and no {kind} of that name"
    where = ", ".join(str(folder) for folder in folders()) or "no scenarios folder was found"
    raise ScenarioError(f"{text}: {what} (looked in {where}).{did_you_mean(name, known)}")
