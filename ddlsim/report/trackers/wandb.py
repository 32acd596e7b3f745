"""Weights & Biases: offline runs in RUN/wandb, which `wandb sync` uploads; online if WANDB_MODE is set so."""

import hashlib
import os
from typing import Any

from ddlsim.report.trackers.base import About, Point, ended_with


class WeightsAndBiases:
    """Tracker of Weights & Biases; runs of one scenario are a group, and a resumed run continues under its
    identifier.
    """

    def begin(self, about: About) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=about.project,
            group=about.group,
            name=about.name,
            config=dict(about.config),
            dir=str(about.directory),
            id=hashlib.sha256(str(about.directory.resolve()).encode()).hexdigest()[:12],
            resume="allow",
            mode=mode,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="round")

    def point(self, point: Point) -> None:
        self._run.log({"round": point.round, **point.values})

    def end(self, summary: dict[str, Any]) -> None:
        self._run.summary.update({"status": summary["status"], **ended_with(summary)})
        self._run.finish(exit_code=0 if summary["status"] in ("done", "stopped") else 1)
