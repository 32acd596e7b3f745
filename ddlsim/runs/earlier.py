"""An earlier run that another process goes on from: what it was, and whether this process computes as it did."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import RecordsDamaged, ScenarioError
from ddlsim.runs.inputs import other_inputs
from ddlsim.runs.loading import load_data, prepare
from ddlsim.runs.stages import scenario_digests
from ddlsim.scenario import parts

if TYPE_CHECKING:
    from ddlsim.data import Outline, PreparedData
    from ddlsim.runs.stages import Stage
    from ddlsim.scenario import Scenario


def read_manifest(directory: Path) -> dict[str, Any]:
    """What manifest.json says.

    Raises:
        ScenarioError: if there is none.
        RecordsDamaged: if it cannot be read.
    """
    path = directory / "manifest.json"
    if not path.is_file():
        raise ScenarioError(f"{directory}: expected the directory of a run, found no manifest.json in it.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["data"], dict):
            raise TypeError("its data is no mapping")
        return manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}. Run it again with `ddlsim run ... --force`.") from error


def refuse_edited(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises ScenarioError if a scenario in the directory is not the one that the run has followed."""
    then, now = manifest.get("scenario_files"), scenario_digests(directory)
    edited = [] if then is None else sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if edited:
        raise ScenarioError(
            f"{directory / edited[0]}: was changed since the run began. Put it back as it was; what is to be other "
            f"from some round on makes a branch: `ddlsim resume {directory} --set KEY=VALUE --out NEW`."
        )


def need_given_parts(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises ScenarioError if the run has parts that Python code had given it, and now has not."""
    tables = {parts.table(key).kind: (key, parts.table(key)) for key in parts.TABLES}
    for origin in manifest.get("plugins") or ():
        if "source" not in origin:
            continue
        key, table = tables[origin["kind"]]
        if origin["name"] not in table:
            where = f"{origin['path']}" if origin["path"] else f"its text is in {directory}/manifest.json, at plugins"
            raise ScenarioError(
                f"{directory}: the run was made from Python with {key} {origin['name']} ({where}), which no file and "
                f"no package names. Resume it from Python: ddlsim.resume({str(directory)!r}, {key}={origin['name']})."
            )


def refuse_others(directory: Path, then: Mapping[str, str | None], now: Mapping[str, str | None]) -> None:
    """Raises ScenarioError if what computes now is not what computed then, see manifest.py: made_with."""
    names = sorted(key for key in {*then, *now} if then.get(key) != now.get(key))
    if names:
        differ = "; ".join(_differ(name, then.get(name), now.get(name)) for name in names)
        raise ScenarioError(
            f"{directory}: the run was made with something else: {differ}. Its end may not be the one that it would "
            "have had; --anyway goes on all the same."
        )


def _differ(name: str, then: str | None, now: str | None) -> str:
    """What was something else then, in words; of parts from outside, what tells the code of each from another."""
    found = []
    if name == "plugins":
        were, are = ({(each["kind"], each["name"]): each for each in json.loads(text or "[]")} for text in (then, now))
        for key in sorted({*were, *are}):
            was, has = were.get(key, {}), are.get(key, {})
            fields = sorted(field for field in {*was, *has} if was.get(field) != has.get(field))
            told = ", ".join(f"{field} was {was.get(field)}, is {has.get(field)}" for field in fields)
            found += [f"the code of {' '.join(key)} ({told})"] if fields else []
    return "; ".join(found) or f"{name} was {then}, is {now}"


def load_same_data(
    scenario: "Scenario",
    manifest: Mapping[str, Any],
    data_dir: Path | None,
    download: bool,
    stages: "Sequence[Stage]" = (),
) -> "PreparedData | Outline":
    """The run's data; never its fallback's, which the scenario of a run on it names as its own.

    Args:
        stages: what a branched run follows before `scenario`.
    Raises:
        ScenarioError: if it is other data than the run's, or dealt in another way, or a file that the scenario names
            has changed.
        DataMissing: if it is not there.
    """
    prepared = prepare(load_data(scenario, data_dir, fallback=False, download=download))
    other = other_inputs(manifest, scenario, prepared, [stage.scenario for stage in stages])
    if other:
        raise ScenarioError(f"{other}. Put back what the run was made on; --data-dir names the folder of its data.")
    return prepared


def refuse_other_inputs(directory: Path, scenario: "Scenario", prepared: "PreparedData | Outline") -> None:
    """Raises ScenarioError if the run of a scenario that is there already has read something else than is there now."""
    other = other_inputs(read_manifest(directory), scenario, prepared)
    if other:
        raise ScenarioError(
            f"{directory} holds this run already, but of other inputs: {other}. Put back what it was made on, name "
            "another --out, or use --force, which runs it again and keeps what is there beside it."
        )
