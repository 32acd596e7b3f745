"""Joules and grams from counts by hand, and the figures of the presets."""

import numpy as np
import pytest

from ddlsim.devices.energy import GRIDS, KINDS, LINKS, Costs, Work, grams, joules, total

WORK = Work(
    steps=np.array([10.0, 4.0, 0.0]),
    computing_s=np.array([2.0, 1.0, 0.0]),
    idle_s=np.array([3.0, 0.0, 5.0]),
    sent_bytes=np.array([100, 0, 50]),
    received_bytes=np.array([10, 90, 50]),
)


def test_watts_count_seconds_of_computing_and_each_byte_once_at_both_ends():
    spent = joules(WORK, Costs(watts=10.0, idle_w=2.0, j_per_byte_up=0.1, j_per_byte_down=0.01))
    assert spent["compute_j"].tolist() == [20.0, 10.0, 0.0]
    assert spent["idle_j"].tolist() == [6.0, 0.0, 10.0]
    assert spent["upload_j"].tolist() == [10.0, 0.0, 5.0]
    assert spent["download_j"].tolist() == pytest.approx([0.1, 0.9, 0.5])
    assert total(spent).tolist() == pytest.approx([36.1, 10.9, 15.5])


def test_joules_per_step_ignore_the_step_time():
    assert joules(WORK, Costs(j_per_step=3.0))["compute_j"].tolist() == [30.0, 12.0, 0.0]


def test_server_has_separate_power_and_the_byte_costs_of_a_node():
    spent = joules(WORK, Costs(watts=10.0, idle_w=2.0, j_per_byte_up=0.1, server_w=100.0), server=2)
    assert [values[2] for values in spent.values()] == [0.0, 500.0, 5.0, 0.0]
    assert spent["idle_j"][0] == 6.0


def test_emissions_follow_the_grid():
    assert grams(3.6e6, 436.0) == 436.0
    assert grams(1.8e6, 56.0) == 28.0


def test_radio_presets_are_the_slopes_of_huang_et_al():
    """438.39 mW per Mbit/s: at 1 Mbit/s a byte takes 8e-6 s, in which 0.43839 W are spent."""
    assert LINKS["lte_2012"].values["j_per_byte_up"] == pytest.approx(0.43839 * 8e-6)
    assert LINKS["wifi_2012"].values["j_per_byte_down"] == pytest.approx(0.13701 * 8e-6)


def test_the_wired_preset_is_a_share_of_a_kilowatt_hour_per_gigabyte():
    assert 1e9 * LINKS["wired_2015"].values["j_per_byte_up"] == pytest.approx(0.06 * 3.6e6)


def test_every_preset_names_its_source_and_only_keys_of_its_kind():
    keys = {"device": {"watts"}, "link": {"j_per_byte_up", "j_per_byte_down"}, "grid": {"gco2_per_kwh"}}
    for kind, presets in KINDS.items():
        for preset in presets.values():
            assert set(preset.values) == keys[kind] and "(" in preset.about
    assert GRIDS["world_2022"].values["gco2_per_kwh"] == 436.0
