"""Figures of power, of energy per byte and of grids, each with its source.

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


DEVICES = {
    "jetson_nano_5w": Preset("NVIDIA Jetson Nano in its 5 W mode (power budget, NVIDIA)", {"watts": 5.0}),
    "jetson_nano_10w": Preset("NVIDIA Jetson Nano in its 10 W mode (power budget, NVIDIA)", {"watts": 10.0}),
    "t4": Preset("NVIDIA T4 (board power limit, NVIDIA's data sheet)", {"watts": 70.0}),
    "a100_sxm": Preset("NVIDIA A100 SXM (board power limit, NVIDIA's data sheet)", {"watts": 400.0}),
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
