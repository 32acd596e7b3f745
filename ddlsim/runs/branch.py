"""Branches: a run that continues another one from one of its rounds with changed keys, as if the network became slower.

The branch has a separate directory. Up to the branching round it equals the earlier run: it starts with a checkpoint of
that run at or before the round, if there is one, and otherwise from the start. When all nodes have completed the round,
the simulation continues with the changed scenario (see assembly/simulation.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ddlsim.foundation.errors import RecordsFailed, ScenarioError
from ddlsim.foundation.interrupts import interruptible
from ddlsim.report.reading import read as read_records
from ddlsim.runs import directory as directories
from ddlsim.runs import manifest as manifests
from ddlsim.runs.branch_history import MISSING, Stage, changes, changes_text, read_stages, refuse_fixed
from ddlsim.runs.checkpoint import ReplayToCheckpoint
from ddlsim.runs.checkpoint_files import State, checkpoints_of, copy_checkpoint, remove_checkpoints, whole_checkpoints
from ddlsim.runs.finalize import RunContext
from ddlsim.runs.loading import about_executor, computes_on, load_same_data, make_learner
from ddlsim.runs.loop import execute, write_first_files
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.scenario import Scenario, digest, load
from ddlsim.scenario.parts import origins

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner


@dataclass(frozen=True)
class Branch:
    """A checked request for a branch.

    Args:
        parent: directory of the earlier run.
        manifest: of the earlier run.
        stages: scenarios of the branch up to the branching round.
        scenario: of the branch after that round.
        changed: key -> its value before and after.
        before: scenarios of the earlier run, in order.
    """

    parent: Path
    manifest: dict[str, Any]
    stages: tuple[Stage, ...]
    scenario: Scenario
    changed: Mapping[str, tuple[Any, Any]]
    before: tuple[Scenario, ...]

    @property
    def from_round(self) -> int:
        """The branching round."""
        return self.stages[-1].until

    @property
    def followed(self) -> tuple[Scenario, ...]:
        """All scenarios of the branch, in order."""
        return (*(stage.scenario for stage in self.stages), self.scenario)

    @property
    def default_path(self) -> Path:
        """A directory next to the earlier run's."""
        return self.parent.with_name(f"{self.parent.name}-from-{self.from_round}-{digest(self.scenario)}")

    def fits(self, state: State) -> bool:
        """Whether the branch can start with a checkpoint of the earlier run."""
        old, new = self.before[-1].rounds, self.scenario.rounds
        if state.completed + bool(state.evaluations) > self.from_round:  # an evaluation follows the end of the round
            return False
        # The number of rounds influences ddlsim's algorithms only in the last round, but schedules and user-defined
        # parts in all rounds.
        counts_rounds = self.scenario.training.schedule is not None or origins(*self.followed)
        return old == new or (not counts_rounds and state.furthest < min(old, new) - 1)

    def describe(self, manifest: dict[str, Any]) -> None:
        """Add the branch to its manifest."""
        changed = {key: [None if value is MISSING else value for value in pair] for key, pair in self.changed.items()}
        about = {"parent": str(self.parent), "from_round": self.from_round, "changed": changed}
        manifest |= {"files_read": manifests.file_digests(*self.followed), "plugins": origins(*self.followed)}
        manifest["data"] |= {key: self.manifest["data"].get(key) for key in ("fallback", "missing")}
        manifest["branches"] = [*self.manifest.get("branches", ()), about]
        if self.changed:
            text = f"branched from {self.parent} after round {self.from_round}: {changes_text(self.changed)}"
            manifest["labels"].append(text)


def plan_branch(directory: Path, from_round: int | None, overrides: Sequence[str]) -> Branch:
    """Check a request for a branch.

    Args:
        directory: of the earlier run.
        from_round: the branching round; None: the last one that the run is known to have completed.
        overrides: "dotted.key=value" texts.
    Raises:
        ScenarioError: if it is impossible; nothing was run.
        RecordsDamaged: if the earlier run cannot be read.
    """
    directory = directory.resolve() if directory.name in ("", "..") else directory
    manifest = manifests.read_manifest(directory)
    manifests.refuse_edited(directory, manifest)
    manifests.require_python_parts(directory, manifest)
    before, after = load(directory / "scenario.yaml"), load(directory / "scenario.yaml", overrides)
    earlier = read_stages(directory)
    changed = changes(before, after)
    refuse_fixed(changed, before)
    until = _last_round(directory, manifest, before) if from_round is None else from_round
    least = earlier[-1].until if earlier else 1
    changes_rounds = set(changed) - {"rounds", "description", "paper", "evaluation.fair_lambda"}
    most = min(before.rounds, after.rounds - bool(changes_rounds))  # changes after the last round have no effect
    if not least <= until <= most:
        cure = f" Branch {manifest['branches'][-1]['parent']} to go back further." if earlier else ""
        raise ScenarioError(f"--from-round {until}: expected a round from {least} to {most}.{cure}")
    stages = earlier if earlier and earlier[-1].until == until else (*earlier, Stage(before, until))
    # A run knows its number of rounds from the start, also if its branch has more.
    extended = tuple(Stage(stage.scenario.model_copy(update={"rounds": after.rounds}), stage.until) for stage in stages)
    return Branch(directory, manifest, extended, after, changed, (*(stage.scenario for stage in earlier), before))


def branch(planned: Branch, out: Path | None, anyway: bool, options: Options, fewer: bool) -> dict[str, Any]:
    """Run a branch; the summary and errors are as in `resume`.

    Args:
        planned: the branch.
        out: its directory; None: next to the earlier run's.
        anyway: start with a checkpoint although code, libraries or device have changed.
        options: see Options.
        fewer: see `make_learner`.
    """
    started = time.perf_counter()
    scenario, path = planned.scenario, out or planned.default_path
    if path.resolve() == planned.parent.resolve():
        raise ScenarioError(f"--out {path}: expected another directory than the run's. Name another path.")
    with Progress(scenario.name, scenario.rounds, options.mode) as console, interruptible() as interrupts:
        is_same = directories.same_scenario(path, scenario, planned.stages)
        is_same = is_same and manifests.same_files(path, *planned.followed)
        finished = directories.complete_summary(path)
        if finished and is_same:
            console.message(f"{path} holds this branch already.")
            return finished
        device = computes_on(scenario, options)
        prepared = load_same_data(scenario, planned.manifest, options.data_path, options.download, planned.stages)
        data_s = time.perf_counter() - started
        found = _usable_checkpoint(planned, console.message)
        if not anyway:
            now = manifests.made_with(planned.before, device)
            then = manifests.recorded_environment(planned.manifest) if found is None else found[1].made_with
            manifests.refuse_other_environment(
                planned.parent, then, now if found else {key: now.get(key) for key in then}
            )

        def spare(held: Path) -> None:
            if is_same and checkpoints_of(held):
                raise ScenarioError(f"{held} holds this branch, unfinished. `ddlsim resume {held}` continues it.")

        with (
            closing(make_learner(planned.followed[0], prepared, device, options, console.message, fewer)) as learner,
            directories.run_directory(path, console.message, spare) as place,
        ):
            manifest = manifests.start_manifest(scenario, prepared, device, None, options.command)
            manifest["executor"] = about_executor(learner)
            planned.describe(manifest)
            parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
            context = RunContext(place, *parts, options, device, stages=planned.stages)
            if found is not None:
                write_first_files(context)
                context.repetition = _repetition(place.path, *found, cast("Learner", learner))
                context.earlier_s = found[1].wall_s
            return execute(context)


def _last_round(directory: Path, manifest: Mapping[str, Any], scenario: Scenario) -> int:
    """Return the last round that a run is known to have completed."""
    summary = directories.complete_summary(directory)
    if summary is not None:
        done = min(int(summary.get("evaluated_round") or scenario.rounds), scenario.rounds)
        if scenario.training.early_stopping is None:
            return done
        # The final evaluation may have the number of a round that no node has run.
        trained = read_records(directory).rows.get("validation_loss")
        return done if trained is None else min(done, int(trained.round.max()))
    stopped = int((manifest.get("stopped") or {}).get("round", 0))
    if stopped:
        return stopped
    for _, state in whole_checkpoints(directory):
        return min(state.completed, scenario.rounds)
    raise ScenarioError(f"{directory}: has no checkpoint. Name the round to branch at, by --from-round (from_round).")


def _usable_checkpoint(planned: Branch, notify: Callable[[str], None]) -> tuple[Path, State] | None:
    """Return the newest checkpoint of the earlier run that the branch can start with, or None."""
    if planned.scenario.learning == "none":
        return None
    for checkpoint, state in whole_checkpoints(planned.parent, notify):
        if planned.fits(state):
            again = planned.from_round - state.completed
            computed = f", {again} more are computed again" if again else ""
            notify(f"{planned.parent}: {state.completed} rounds are repeated without training{computed}.")
            return checkpoint, state
    notify(f"{planned.parent} has no checkpoint for these changes, so all rounds are computed again (docs/resume.md).")
    return None


def _repetition(path: Path, checkpoint: Path, state: State, learner: "Learner") -> ReplayToCheckpoint:
    """Repeat the earlier run up to a checkpoint, which is copied into the new directory."""
    try:
        return ReplayToCheckpoint(copy_checkpoint(checkpoint, path), state, learner)
    except OSError as error:
        remove_checkpoints(path)
        raise RecordsFailed(f"{path}: no checkpoint can be copied to it: {error.strerror or error}.") from error
