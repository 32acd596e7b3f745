"""Former names of keys and values are taken for one more version, and told."""

import warnings

import pytest

from ddlsim.scenario import load, to_yaml
from ddlsim.scenario.renamed import RenamedWarning


def test_a_former_key_in_a_file_is_told_with_its_place_and_means_the_same(write):
    file = write(more="device: cpu\nevaluation: {checkpoint: last}\n")
    with pytest.warns(RenamedWarning) as told:
        scenario = load(file)
    assert scenario.compute_device == "cpu" and scenario.evaluation.evaluated_model == "last"
    texts = [str(warning.message) for warning in told]
    assert any(text.startswith(f"{file}:") and "device is called compute_device now" in text for text in texts)
    assert any("evaluation.checkpoint is called evaluation.evaluated_model now" in text for text in texts)


def test_a_former_key_on_the_command_line_is_told(write):
    with pytest.warns(RenamedWarning, match=r"^--set device=cpu: device is called compute_device now"):
        assert load(write(), ["device=cpu"]).compute_device == "cpu"


def test_a_key_by_its_former_and_its_present_name_is_refused(problems):
    (found,) = problems(more="compute_device: cuda\ndevice: cpu\n")
    assert found == "test.yaml:8:1: device: is a former name of compute_device, which is given as well; leave it out"


def test_present_names_are_written_and_not_told(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = to_yaml(load(write()))
    assert "compute_device: auto" in text and "evaluated_model: last" in text
    assert "\ndevice:" not in text and "checkpoint" not in text


def test_former_values_are_told_wherever_they_stand(write):
    more = "shift: {name: colour}\nnetwork: {links: {name: mix, parts: [{kind: fibre, share: 1}]}}\n"
    with pytest.warns(RenamedWarning) as told:
        scenario = load(write(more=more), ["data={name: cifar10}"])
        augmented = load(write(), ["training.augmentation=colour", "data={name: cifar10}"])
    assert type(scenario.shift).__name__ == "Color"
    assert scenario.network.links.parts[0].kind == "fiber"
    assert augmented.training.augmentation == "color"
    assert len(told) == 3


def test_the_former_limit_in_rounds_is_reported_to_count_seconds(write):
    with pytest.warns(RenamedWarning, match="is called protocol.staleness_s now, and it counts simulated seconds"):
        assert load(write(), ["protocol.staleness=5"]).protocol.staleness_s == 5
