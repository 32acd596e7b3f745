"""Scenario files by path or by bare name."""

from collections.abc import Iterator
from pathlib import Path

from ddlsim.errors import ScenarioError
from ddlsim.scenario.problems import did_you_mean

PACKAGE_DIR = Path(__file__).resolve().parent.parent


def folders() -> Iterator[Path]:
    """Where bare names are looked for: ./scenarios, those inside the package, those of the source tree."""
    seen = set()
    source_tree = PACKAGE_DIR.parent if (PACKAGE_DIR.parent / "pyproject.toml").is_file() else Path()
    for folder in (Path("scenarios"), PACKAGE_DIR / "_scenarios", source_tree / "scenarios"):
        if folder.is_dir() and folder.resolve() not in seen:
            seen.add(folder.resolve())
            yield folder


def by_name() -> dict[str, Path]:
    """Every scenario that can be run by its bare name; files that others extend (below base/) are left out."""
    found: dict[str, Path] = {}
    for folder in folders():
        for file in sorted(folder.rglob("*.yaml")):
            if "base" not in file.relative_to(folder).parts[:-1]:
                found.setdefault(file.stem, file)
    return found


def find(path: str | Path) -> Path:
    """The file of a path or a bare name.

    Raises:
        ScenarioError: there is none.
    """
    file = Path(path)
    if file.is_file():
        return file
    text = str(path)
    known = by_name()
    name = text.removesuffix(".yaml")
    if name in known:
        return known[name]
    for folder in folders():
        for inside in (folder / text, folder / f"{text}.yaml"):
            if inside.is_file():
                return inside
    what = "is a folder, expected a file" if file.is_dir() else "no such file, and no scenario of that name"
    where = ", ".join(str(folder) for folder in folders()) or "no scenarios folder was found"
    raise ScenarioError(f"{text}: {what} (looked in {where}).{did_you_mean(name, known)}")
