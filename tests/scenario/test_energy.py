"""The section `energy`: presets, keys that override them, and errors."""

from ddlsim.scenario import digest, load


def test_key_overrides_its_preset(write):
    costs = load(write(more="energy: {link: lte_2012, device: t4, j_per_byte_down: 1.0}\n")).energy.costs
    assert (costs.watts, costs.j_per_byte_down) == (70.0, 1.0) and 0 < costs.j_per_byte_up < 1e-5


def test_energy_changes_the_digest(write):
    scenario = load(write())
    assert digest(scenario) != digest(load(write(more="energy: {watts: 5}\n")))


def test_error_of_an_unknown_preset_offers_the_nearest(problems):
    (text,) = problems(more="energy: {device: jetson_nano}\n")
    assert "energy.device: unknown preset 'jetson_nano'" in text and "jetson_nano_5w" in text


def test_computing_has_one_price(problems):
    (text,) = problems(more="energy: {watts: 5, j_per_step: 0.1}\n")
    assert text.endswith("energy: computing costs j_per_step or watts; leave one out")


def test_section_without_costs_is_refused(problems):
    (text,) = problems(more="energy: {grid: world_2022}\n")
    assert "energy: no cost is set" in text


def test_a_negative_price_is_refused(problems):
    (text,) = problems(more="energy: {watts: -1}\n")
    assert "energy.watts: expected a number of at least 0, got -1" in text
