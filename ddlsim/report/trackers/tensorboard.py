"""TensorBoard: event files in RUN/tensorboard, a tag per value and the round as step; `tensorboard --logdir runs`."""

from typing import Any

from ddlsim.report.trackers.base import About, Point, ended_with

FOLDER = "tensorboard"


class TensorBoard:
    """Tracker of TensorBoard; values of the scenario are text under `scenario`."""

    def begin(self, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: SummaryWriter = SummaryWriter(str(about.directory / FOLDER))
        rows = [f"|{key}|{str(value).replace('|', '/')}|" for key, value in about.config.items()]
        self._writer.add_text("scenario", "\n".join(["|key|value|", "|---|---|", *rows]))

    def point(self, point: Point) -> None:
        for name, value in point.values.items():
            self._writer.add_scalar(name, value, point.round)
        self._writer.flush()

    def end(self, summary: dict[str, Any]) -> None:
        for name, value in ended_with(summary).items():
            self._writer.add_scalar(f"end/{name}", value, summary["evaluated_round"] or 0)
        self._writer.close()
