"""Where wall time went, for `--profile`."""

from collections.abc import Mapping, Sequence

ALWAYS_PROFILED = ("training", "head losses", "evaluation", "merging", "similarity")


def wall_profile(
    jobs_s: Mapping[str, float], setup_s: float, data_s: float, recording_s: float, manifest: dict
) -> dict[str, float]:
    """Where wall time went, in seconds: data, real computing by kind of work, recording, and the event loop.

    Args:
        jobs_s: kind of work -> seconds; kinds that always stand in the table stand there with 0.
        setup_s: imports and the making of all objects.
        data_s: reading and preparing data.
        recording_s: writing of records.
        manifest: finished, with `wall_s` and `sim_time_s`.

    Returns:
        `event loop` is what is left: simulated time, the network, and the algorithms' own code.
    """
    total_s, sim_time_s = manifest["wall_s"], manifest["sim_time_s"]
    parts = {"setup": setup_s, "data": data_s, **dict.fromkeys(ALWAYS_PROFILED, 0.0), **jobs_s}
    parts["similarity"] += parts.pop("comparison", 0.0)  # of whole models, and of classifiers' rows
    parts["recording"] = recording_s
    parts["event loop"] = total_s - sum(parts.values())
    return {
        **{name: round(value, 3) for name, value in parts.items()},
        "total": total_s,
        "simulated to wall": round(sim_time_s / total_s, 3),
    }


def wave_counts(waves: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
    """How often each kind of work ran, and on how many jobs in all.

    Args:
        waves: kind of work -> jobs of each wave.
    """
    return {kind: {"waves": len(sizes), "jobs": sum(sizes)} for kind, sizes in waves.items()}
