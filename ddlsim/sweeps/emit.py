"""Sweeps for other schedulers: one command a run, or an array script for SLURM; nothing has to stay alive."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from ddlsim.sweeps.points import Point

SLURM = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{count}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output={log}
# Add what your cluster asks for: --time, --partition, --gres=gpu:1. TERM, 120 s before the end, makes a run end with a
# checkpoint; a task whose run is complete ends at once, so the same script submitted again goes on with the rest.
cd {here} || exit 1
command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" <<'RUNS'
{commands}
RUNS
)
eval "exec srun $command"
"""


def words_of(point: Point, options: Sequence[str] = ()) -> tuple[str, ...]:
    """The arguments of `ddlsim` that make a run; writes the scenario's file where it has no command of its own."""
    words = point.words
    if words is None:
        from ddlsim.scenario import to_yaml

        assert point.scenario is not None
        point.file.parent.mkdir(parents=True, exist_ok=True)
        point.file.write_text(to_yaml(point.scenario), encoding="utf-8")
        words = ("run", str(point.file))
    return (*words, "--resume", "--out", str(point.directory), *options)


def commands(points: Sequence[Point], options: Sequence[str] = ()) -> str:
    """One line for each run."""
    return "".join(f"{shlex.join(['ddlsim', *words_of(point, options)])}\n" for point in points)


def slurm(points: Sequence[Point], name: str, out: Path, options: Sequence[str] = ()) -> str:
    """A script for `sbatch`, a task of its array for each run."""
    log = shlex.quote(str(out.absolute() / "slurm-%A_%a.log"))
    here = shlex.quote(str(Path.cwd()))
    return SLURM.format(
        name=shlex.quote(name), count=len(points), log=log, here=here, commands=commands(points, options).rstrip()
    )
