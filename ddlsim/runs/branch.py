"""A run that goes on, from one of its rounds, in another way: what if the network had been slower from there on?

The new run has a directory of its own. Up to the branching round it is the earlier one: it begins with a checkpoint of
that run at or before the round, if one is kept, and otherwise from the start. At the end of the round, when all nodes
have completed it, the simulation goes on as the changed scenario says (see change.py).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ddlsim.foundation.errors import RecordsDamaged, RecordsFailed, ScenarioError
from ddlsim.foundation.interrupts import interruptible
from ddlsim.report.reading import read as read_records
from ddlsim.runs import directory as directories
from ddlsim.runs.branch_history import MISSING, Stage, changes, changes_text, read_stages, refuse_fixed
from ddlsim.runs.callbacks import Progress
from ddlsim.runs.checkpoint import State, checkpoints_of, copy_checkpoint, read_state, remove_checkpoints
from ddlsim.runs.computing import about_executor, computes_on, make_learner
from ddlsim.runs.loading import Options
from ddlsim.runs.loop import RunContext, run_in, write_first_files
from ddlsim.runs.manifest import (
    file_digests,
    load_same_data,
    made_with,
    need_given_parts,
    read_manifest,
    recorded_environment,
    refuse_edited,
    refuse_others,
    same_files,
    start_manifest,
)
from ddlsim.runs.repetition import ReplayToCheckpoint
from ddlsim.scenario.own_parts import origins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddlsim.learning.learner import Learner
    from ddlsim.scenario import Scenario


@dataclass(frozen=True)
class Branch:
    """What a branched run is to be.

    Args:
        parent: directory of the earlier run.
        manifest: of the earlier run.
        stages: what it follows up to the branching round.
        scenario: what it follows from there on.
        changed: key -> its value before and after.
        before: what the earlier run followed, one after the other.
    """

    parent: Path
    manifest: dict[str, Any]
    stages: tuple[Stage, ...]
    scenario: "Scenario"
    changed: "Mapping[str, tuple[Any, Any]]"
    before: "tuple[Scenario, ...]"

    @property
    def from_round(self) -> int:
        """The round after which it goes its own way."""
        return self.stages[-1].until

    @property
    def followed(self) -> "tuple[Scenario, ...]":
        """Its scenarios one after the other."""
        return (*(stage.scenario for stage in self.stages), self.scenario)

    @property
    def about(self) -> dict[str, Any]:
        """For the manifest."""
        plain = {key: [None if value is MISSING else value for value in values] for key, values in self.changed.items()}
        return {"parent": str(self.parent), "from_round": self.from_round, "changed": plain}

    @property
    def label(self) -> str:
        """What reports say of it."""
        return f"branched from {self.parent} after round {self.from_round}: {changes_text(dict(self.changed))}"

    @property
    def default_path(self) -> Path:
        """Beside the earlier run."""
        from ddlsim.scenario import digest

        return self.parent.with_name(f"{self.parent.name}-from-{self.from_round}-{digest(self.scenario)}")

    @property
    def scheduled(self) -> bool:
        """Whether the learning rate follows a schedule."""
        return self.scenario.training.schedule is not None

    def fits(self, state: State) -> bool:
        """Whether the run can begin with a checkpoint of the earlier one."""
        if state.completed > self.from_round:
            return False
        was_rounds = self.before[-1].rounds
        if self.scenario.rounds == was_rounds:
            return True
        # How many rounds there are steers the nodes of our algorithms in the last one and after it; a schedule of the
        # learning rate, and perhaps an algorithm from outside, in all of them.
        if self.scheduled or origins(*self.followed):
            return False
        return state.furthest < min(self.scenario.rounds, was_rounds) - 1


def plan_branch(directory: Path, from_round: int | None, overrides: Sequence[str]) -> Branch:
    """Checks what is asked for.

    Args:
        directory: of the earlier run.
        from_round: the branching round; None: the last one that the run has completed, as far as it can be known.
        overrides: "dotted.key=value" texts.
    Raises:
        ScenarioError: if it cannot be done; nothing was run.
        RecordsDamaged: if the earlier run cannot be read.
    """
    from ddlsim.scenario import load

    directory = directory.resolve() if directory.name in ("", "..") else directory
    manifest = read_manifest(directory)
    refuse_edited(directory, manifest)
    need_given_parts(directory, manifest)
    before, after = load(directory / "scenario.yaml"), load(directory / "scenario.yaml", overrides)
    earlier = read_stages(directory)
    changed = changes(before, after)
    refuse_fixed(changed, before)
    until = _last_round(directory, manifest, before) if from_round is None else from_round
    least = earlier[-1].until if earlier else 1
    if until < least:
        instead = f"; branch {manifest['branches'][-1]['parent']} to go back further" if earlier else ""
        raise ScenarioError(f"--from-round {until}: expected a round from {least} on{instead}.")
    most = min(before.rounds, after.rounds)
    if until > most:
        raise ScenarioError(f"--from-round {until}: expected at most {most}, the number of rounds.")
    if until == after.rounds and set(changed) - {"rounds", "description", "paper", "evaluation.fair_lambda"}:
        raise ScenarioError(
            f"--from-round {until}: the run has {after.rounds} rounds, so nothing that changes after the last one can "
            "be seen. Branch at an earlier round, or add rounds: --set rounds=..."
        )
    stages = earlier if earlier and earlier[-1].until == until else (*earlier, Stage(before, until))
    given = tuple(Stage(_with_rounds(stage.scenario, after.rounds), stage.until) for stage in stages)
    return Branch(directory, manifest, given, after, changed, (*(stage.scenario for stage in earlier), before))


def branch(planned: Branch, out: Path | None, anyway: bool, options: Options) -> dict[str, Any]:
    """Runs a branch; the summary and errors are those of `resume`.

    Args:
        planned: what it is.
        out: its directory; None: beside the earlier run's.
        anyway: begin with a checkpoint although other code, libraries or another device made it.
        options: how it is carried out.
    """
    started = time.perf_counter()
    scenario, path = planned.scenario, out or planned.default_path
    if path.resolve() == planned.parent.resolve():
        raise ScenarioError(f"--out {path}: is the run that is to be branched. Name another path.")
    console = Progress(scenario.name, scenario.rounds, mode=options.progress)
    try:
        with interruptible() as interrupts:
            finished = directories.complete_summary(path)
            if finished and _is_same(path, planned):
                console.message(f"{path} holds this branch already.")
                return finished
            device = computes_on(scenario, options)
            prepared = load_same_data(scenario, planned.manifest, options.data_dir, options.download, planned.stages)
            data_s = time.perf_counter() - started
            found = _usable_checkpoint(planned, console.message)
            if not anyway:
                now = made_with(planned.before, device)
                then = recorded_environment(planned.manifest) if found is None else found[1].made_with
                refuse_others(planned.parent, then, now if found else {key: now.get(key) for key in then})
            learner = make_learner(planned.stages[0].scenario, prepared, device, options, console.message)
            try:
                with directories.run_directory(path, console.message, lambda held: _spare(held, planned)) as place:
                    manifest = start_manifest(scenario, prepared, device, None, options.command)
                    manifest["executor"] = about_executor(learner)
                    manifest |= {"files_read": file_digests(*planned.followed), "plugins": origins(*planned.followed)}
                    manifest["data"] |= {key: planned.manifest["data"].get(key) for key in ("fallback", "missing")}
                    manifest["branches"] = [*_branches_before(planned), planned.about]
                    manifest["labels"] += [planned.label] if planned.changed else []
                    parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
                    life = RunContext(place, *parts, options, device, stages=planned.stages)
                    if found is not None:
                        write_first_files(life)
                        life.repetition = _repetition(place.path, *found, cast("Learner", learner))
                        life.earlier_s = found[1].wall_s
                    return run_in(life)
            finally:
                learner.close()
    finally:
        console.close()


def _with_rounds(scenario: "Scenario", rounds: int) -> "Scenario":
    """The scenario with so many rounds: a run has them from the start, also where its branch has more."""
    return scenario.model_copy(update={"rounds": rounds})


def _last_round(directory: Path, manifest: "Mapping[str, Any]", scenario: "Scenario") -> int:
    """The last round that a run is known to have completed."""
    summary = directories.complete_summary(directory)
    if summary is not None:
        done = min(int(summary.get("evaluated_round") or scenario.rounds), scenario.rounds)
        if scenario.training.early_stopping is None:
            return done
        # What nodes end with may have the number of a round that nobody did.
        trained = read_records(directory).rows.get("validation_loss")
        return done if trained is None else min(done, int(trained.round.max()))
    stopped = int((manifest.get("stopped") or {}).get("round", 0))
    if stopped:
        return stopped
    for checkpoint in checkpoints_of(directory):
        try:
            return min(read_state(checkpoint).completed, scenario.rounds)
        except RecordsDamaged:
            continue
    raise ScenarioError(
        f"{directory}: has no checkpoint. Name the round to branch at: --from-round (Python: from_round)."
    )


def _branches_before(planned: Branch) -> list[dict[str, Any]]:
    """What the manifest of the earlier run says of its own branchings, all of which are part of the new one."""
    return list(planned.manifest.get("branches", ()))


def _is_same(path: Path, planned: Branch) -> bool:
    """Whether a directory holds this very branch, with the same code of parts from outside, and of the same files."""
    from ddlsim.scenario import to_yaml

    try:
        texts = {stage.file: to_yaml(stage.scenario) for stage in planned.stages}
        texts["scenario.yaml"] = to_yaml(planned.scenario)
        if any((path / name).read_text(encoding="utf-8") != text for name, text in texts.items()):
            return False
    except (OSError, ValueError):
        return False
    return directories.same_code(path, *planned.followed) and same_files(path, *planned.followed)


def _spare(path: Path, planned: Branch) -> None:
    if checkpoints_of(path) and _is_same(path, planned):
        raise ScenarioError(
            f"{path} holds this branch, which did not come to its end. `ddlsim resume {path}` continues it; remove the "
            "directory to start it again."
        )


def _usable_checkpoint(planned: Branch, tell: "Callable[[str], None]") -> tuple[Path, State] | None:
    """The newest checkpoint of the earlier run that the branch can begin with; None: there is none."""
    if planned.scenario.learning == "none":
        return None
    for checkpoint in checkpoints_of(planned.parent):
        try:
            state = read_state(checkpoint)
        except RecordsDamaged as error:
            tell(f"{error} Looking for an earlier checkpoint.")
            continue
        if planned.fits(state):
            tell(_what_is_computed(planned, state.completed))
            return checkpoint, state
    why = "`ddlsim run --checkpoint-keep all` keeps them"
    if planned.scenario.rounds != planned.before[-1].rounds and (origins(*planned.followed) or planned.scheduled):
        why = "how many rounds there are may steer parts of one's own, and a schedule, from the first one on"
    tell(
        f"{planned.parent} keeps no checkpoint from which round {planned.from_round} can be reached in this way "
        f"({why}), so all rounds are computed again."
    )
    return None


def _repetition(path: Path, checkpoint: Path, state: State, learner: "Learner") -> ReplayToCheckpoint:
    """Repeats the earlier run up to a checkpoint, from a copy of it in the new directory."""
    try:
        return ReplayToCheckpoint(copy_checkpoint(checkpoint, path), state, learner)
    except OSError as error:
        remove_checkpoints(path)
        raise RecordsFailed(f"{path}: no checkpoint can be copied to it: {error.strerror or error}.") from error


def _what_is_computed(planned: Branch, completed: int) -> str:
    """The sentence on which rounds of the earlier run are repeated, and which must be computed again."""
    again = planned.from_round - completed
    computed = f", {again} more are computed again" if again else ""
    return f"{planned.parent}: {completed} rounds are repeated without training{computed}; then the branch begins."
