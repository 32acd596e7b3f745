"""Settings of every algorithm, with and without churn, and executors, for runs whose bytes are compared."""

from typing import get_args

from ddlsim.runs.cluster.cluster import Executor, Shards

KEYS = {
    "mapl": ", warmup_rounds: 1, projection_units: 64, temperature: 0.5",
    "pens": ", loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 3",
    "panm": ", loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 3",
    "dac": ", loss_batches: local_steps, sampled_peers: 3",
    "facade": ", heads: 2, warmup_rounds: 1",
}
CHURN = (
    "mode=async",
    "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}], state: lost}",
    "devices={name: lognormal, median_step_time_s: 0.05}",
    "network.drop_probability=0.1",
    "network.on_drop=drop",
)

EXECUTORS = tuple(
    Executor(name="ray", workers=workers, cpus_per_worker=1, shards=shards)
    for workers in (1, 2, 3)
    for shards in get_args(Shards)
)
"""Every number of workers up to three with nodes dealt to them in every way."""


def settings_of(algorithm: str) -> str:
    return f"algorithm={{name: {algorithm}{KEYS.get(algorithm, '')}}}"
