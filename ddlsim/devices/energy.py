"""Joules of nodes' work, and published figures of power, of energy per byte and of grids, each with its source.

Joules are a pure function of counts, so a finished run can be evaluated with other figures.

A preset sets the keys of the scenario's section `energy` that it lists; a key in the scenario overrides it.

- Power of a device while it computes is its power limit, as its maker states it: an upper bound of its power.
- Energy per byte of a phone's radio is the slope of power over throughput in the model of Huang, Qian, Gerber, Mao,
  Sen, Spatscheck, "A Close Examination of Performance and Power Characteristics of 4G LTE Networks" (MobiSys 2012,
  table 4). 1 mW per Mbit/s is 1e-9 J per bit. The radio's power independent of throughput (1288 mW on LTE, 818 mW on
  3G, 133 mW on Wi-Fi, and the tail after a transfer) is left out: a radio that carries little costs more than this.
- Energy per byte of the wired internet, core and access networks without the ends' own equipment: 0.06 kWh/GB in 2015,
  Aslan, Mayers, Koomey, France, "Electricity Intensity of Internet Data Transmission" (Journal of Industrial Ecology
  22(4), 2018). They find that it halves every two years; the preset is the figure of 2015. A byte counts once, at its
  sender.
- Grids, means over a year in CO2 equivalents: the world in 2022, Ember, "Global Electricity Review 2023"; countries in
  2023, Our World in Data, "Carbon intensity of electricity generation" (Ember and Energy Institute, 2024).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ddlsim.devices.language_models import GPUS

J_PER_KWH = 3.6e6
PARTS = ("compute_j", "idle_j", "upload_j", "download_j")


@dataclass(frozen=True)
class Costs:
    """Energy per unit of each kind of work.

    Args:
        j_per_step: joules of a local step; None: `watts` applies.
        watts: power while computing, W; None: computing costs nothing, unless `j_per_step` is set.
        idle_w: power while online and not computing, W.
        j_per_byte_up, j_per_byte_down: joules per byte that a node's uplink and downlink carried.
        server_w: power of the server from start to end, W.
        gco2_per_kwh: grams of CO2 equivalents per kWh; None: unknown.
    """

    j_per_step: float | None = None
    watts: float | None = None
    idle_w: float = 0.0
    j_per_byte_up: float = 0.0
    j_per_byte_down: float = 0.0
    server_w: float = 0.0
    gco2_per_kwh: float | None = None


@dataclass(frozen=True)
class Work:
    """Work of nodes until a point in time, arrays [nodes]; a server is the last.

    Args:
        steps: local steps computed, float64; a forward pass is a third of one.
        computing_s: simulated seconds in which the device computed.
        idle_s: simulated seconds in which the node was online, had rounds left and did not compute.
        sent_bytes, received_bytes: bytes that its uplink and downlink carried, including wasted bytes and parts of
            messages, int64.
    """

    steps: np.ndarray
    computing_s: np.ndarray
    idle_s: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray


def joules(work: Work, costs: Costs, server: int | None = None) -> dict[str, np.ndarray]:
    """Return joules by use, float64 [nodes] each, by the names in PARTS.

    Args:
        work: work of all nodes.
        costs: energy per unit of each kind of work.
        server: the id of the server, which computes nothing and has a separate power; None if there is none.
    """
    by_step = costs.j_per_step is not None
    compute = costs.j_per_step * work.steps if by_step else (costs.watts or 0.0) * work.computing_s
    idle = costs.idle_w * work.idle_s
    if server is not None:
        compute[server], idle[server] = 0.0, costs.server_w * work.idle_s[server]
    return {
        "compute_j": compute,
        "idle_j": idle,
        "upload_j": costs.j_per_byte_up * work.sent_bytes,
        "download_j": costs.j_per_byte_down * work.received_bytes,
    }


def total(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Return all joules of each node, float64 [nodes]."""
    return sum((parts[name] for name in PARTS[1:]), parts[PARTS[0]])


def grams(joules: np.ndarray | float, gco2_per_kwh: float) -> np.ndarray | float:
    """Return grams of CO2 equivalents of these joules."""
    return joules / J_PER_KWH * gco2_per_kwh


MJ_PER_BYTE = 8e-9
"""1 mW per Mbit/s in joules per byte."""
KWH_PER_GB = 3.6e6 / 1e9
"""1 kWh/GB in joules per byte."""


@dataclass(frozen=True)
class Preset:
    """Values of keys of the section `energy`.

    Args:
        about: description and sources of the figures.
        values: key -> value.
    """

    about: str
    values: Mapping[str, float]


def _radio(about: str, up_mw_per_mbps: float, down_mw_per_mbps: float) -> Preset:
    slopes = {"j_per_byte_up": up_mw_per_mbps * MJ_PER_BYTE, "j_per_byte_down": down_mw_per_mbps * MJ_PER_BYTE}
    return Preset(f"{about} (Huang et al., MobiSys 2012, table 4; without what the radio draws at any rate)", slopes)


DEVICES: dict[str, Preset] = {
    "jetson_nano_5w": Preset("NVIDIA Jetson Nano in its 5 W mode (power budget, NVIDIA)", {"watts": 5.0}),
    "jetson_nano_10w": Preset("NVIDIA Jetson Nano in its 10 W mode (power budget, NVIDIA)", {"watts": 10.0}),
    "t4": Preset("NVIDIA T4 (board power limit, NVIDIA's data sheet)", {"watts": 70.0}),
    **{
        name: Preset(
            f"{name.replace('_', ' ').upper()} (power limit, see ddlsim/devices/language_models.py)",
            {"watts": gpu.watts},
        )
        for name, gpu in GPUS.items()
        if gpu.watts is not None
    },
}
LINKS = {
    "lte_2012": _radio("LTE radio of a phone", 438.39, 51.97),
    "3g_2012": _radio("3G radio of a phone", 868.98, 122.12),
    "wifi_2012": _radio("Wi-Fi radio of a phone", 283.17, 137.01),
    "wired_2015": Preset(
        "The wired internet's core and access networks, 0.06 kWh/GB (Aslan et al., J. Industrial Ecology 2018)",
        {"j_per_byte_up": 0.06 * KWH_PER_GB, "j_per_byte_down": 0.0},
    ),
}
GRIDS = {
    "world_2022": Preset("Mean of the world in 2022 (Ember, Global Electricity Review 2023)", {"gco2_per_kwh": 436.0}),
    **{
        f"{country}_2023": Preset(
            f"Mean of {country.capitalize()} in 2023 (Our World in Data, from Ember and Energy Institute)",
            {"gco2_per_kwh": value},
        )
        for country, value in (("china", 582.0), ("france", 56.0), ("germany", 381.0), ("india", 713.0))
    },
}
KINDS = {"device": DEVICES, "link": LINKS, "grid": GRIDS}
"""Key of the section -> its presets."""
