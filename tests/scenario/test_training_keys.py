"""The optimizer and the schedule of a scenario: short forms, keys and errors."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ddlsim.learning.optimizing import OPTIMIZERS
from ddlsim.learning.optimizing.schedules import Cosine
from ddlsim.learning.optimizing.table import NOT_KEYS, SGD, Adam, AdamW, Muon, part_of
from ddlsim.scenario import ScenarioProblems, digest, from_mapping, load, to_yaml, with_fallback
from ddlsim.scenario.load import from_python
from ddlsim.scenario.parts import keys_of
from ddlsim.scenario.tree import OPTIMIZER_KEYS

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


def training(*overrides: str):
    return load(SMOKE, tuple(f"training.{text}" for text in overrides)).training


def problem(*overrides: str) -> str:
    with pytest.raises(ScenarioProblems) as caught:
        training(*overrides)
    return str(caught.value)


def test_optimizer_keys_may_be_keys_of_training():
    assert training("optimizer=sgd", "momentum=0.9").optimizer == SGD(momentum=0.9)
    assert training("betas=[0.9, 0.95]", "optimizer=adamw").optimizer == AdamW(betas=(0.9, 0.95))
    assert training("optimizer={name: AdamW, eps: 1e-6}", "weight_decay=0.5").optimizer == AdamW(
        eps=1e-6, weight_decay=0.5
    )


def test_overridden_optimizer_key_holds_in_the_fallback(tmp_path):
    fallback = "{training: {momentum: 0.5, weight_decay: 0.01}}"
    text = f"extends: {SMOKE}\ntraining: {{momentum: 0.1}}\nfallback: {fallback}\n"
    (tmp_path / "own.yaml").write_text(text)
    wanted = SGD(momentum=0.9, weight_decay=0.01)
    for scenario in (
        load(tmp_path / "own.yaml", ["training.momentum=0.9"]),
        load(tmp_path / "own.yaml", ["training.optimizer.momentum=0.9"]),
        from_python(tmp_path / "own.yaml", {"training.momentum": 0.9}),
    ):
        assert scenario.training.optimizer == SGD(momentum=0.9) and with_fallback(scenario).training.optimizer == wanted


def test_a_key_of_the_optimizer_in_two_places_is_refused(tmp_path):
    text = f"extends: {SMOKE}\ntraining: {{optimizer: {{name: sgd, momentum: 0.5}}, momentum: 0.9}}\n"
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ScenarioProblems, match=r"training.momentum: training.optimizer.momentum is given as well"):
        load(tmp_path / "own.yaml")
    (tmp_path / "base.yaml").write_text(f"extends: {SMOKE}\ntraining: {{optimizer: {{name: sgd, momentum: 0.5}}}}\n")
    (tmp_path / "own.yaml").write_text("extends: base.yaml\ntraining: {momentum: 0.9}\n")
    assert load(tmp_path / "own.yaml").training.optimizer == SGD(momentum=0.9)


def test_file_changes_one_key_of_its_base(tmp_path):
    (tmp_path / "below.yaml").write_text(f"extends: {SMOKE}\ntraining: {{optimizer: adam, betas: [0.8, 0.9]}}\n")
    above = tmp_path / "above.yaml"
    above.write_text("extends: below.yaml\ntraining: {weight_decay: 0.1, schedule: cosine}\n")
    found = load(above).training
    assert found.optimizer == Adam(betas=(0.8, 0.9), weight_decay=0.1) and found.schedule == Cosine()
    above.write_text("extends: below.yaml\ntraining: {optimizer: sgd}\n")
    assert load(above).training.optimizer == SGD()


def test_written_scenario_loads_with_the_same_digest(tmp_path):
    scenario = load(
        SMOKE, ("training={optimizer: rprop, etas: [0.4, 1.1], learning_rate: 1, schedule: {name: cosine}}",)
    )
    (tmp_path / "again.yaml").write_text(to_yaml(scenario))
    again = load(tmp_path / "again.yaml")
    assert again.training == scenario.training and digest(again) == digest(scenario)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["optimizer=rmsprp"], "unknown name 'rmsprp'. Did you mean 'rmsprop'?"),
        (
            ["optimizer={name: rmsprop, alhpa: 0.5}"],
            "training.optimizer.alhpa: unknown key 'alhpa'. Did you mean 'alpha'?",
        ),
        (["optimizer=adam", "momentum=0.9"], "unknown key 'momentum'. Allowed here: name, betas, eps"),
        (["optimizer=nadam", "betas=[0.9, 1.5]"], "NAdam refuses these keys: ValueError: Invalid beta"),
        (["optimizer=lbfgs"], "lbfgs calls the loss several times a step"),
        (["optimizer={name: sgd, nesterov: true}"], "nesterov needs momentum above 0"),
        (["optimizer={name: adam, eps: high}"], "training.optimizer.eps: expected a number"),
        (["schedule=cosin"], "Did you mean 'cosine'?"),
        (["schedule={name: multi_step, milestones: [5, 2]}"], "milestones must ascend, got [5, 2]"),
        (["schedule={name: cosine, warmup: 6}"], "expected less than the run's rounds (6), got 6"),
        (["optimizer=rprop", "weight_decay_on=weights"], "Rprop has no weight_decay"),
        (["clip_norm=0"], "training.clip_norm: expected a number above 0"),
        (["optimizer_state=kept"], "sgd without momentum has no state to keep"),
    ],
)
def test_problems_name_their_places(overrides, words):
    assert words in problem(*overrides)


@pytest.mark.parametrize(("key", "value", "common"), [("proximal", 0.5, 0), ("accumulate", 2, 1)])
def test_keys_over_several_steps_need_whole_trainings(key, value, common):
    with pytest.raises(ScenarioProblems, match=f"training.{key}: expected {common}: gtsgd corrects each step"):
        load(SMOKE, ("algorithm={name: gtsgd}", f"training.{key}={value}"))


def test_smoothed_labels_need_classes():
    with pytest.raises(
        ScenarioProblems, match=r"training.label_smoothing: needs a class per sample, but synthetic_regression"
    ):
        overrides = ("data={name: synthetic_regression, test_samples: 20}", "shift={name: none}")
        load(SMOKE, (*overrides, "partition={name: random}", "evaluation={every: 2}", "training.label_smoothing=0.1"))


def test_user_defined_optimizer_is_named_by_its_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        import torch
        class Half(torch.optim.SGD):
            def __init__(self, params, lr, share=0.5):
                super().__init__(params, lr * share)
        class NoRate(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {})
        """)
    )
    file = tmp_path / "s.yaml"
    file.write_text(f"extends: {SMOKE}\ntraining: {{optimizer: {{name: './mine.py:Half', share: 0.25}}}}\n")
    optimizer = load(file).training.optimizer
    assert optimizer.make([torch.zeros(1)], 1.0).param_groups[0]["lr"] == 0.25
    assert OPTIMIZERS.about(optimizer)["path"].endswith("mine.py")
    file.write_text(f"extends: {SMOKE}\ntraining: {{optimizer: './mine.py:NoRate'}}\n")
    with pytest.raises(ScenarioProblems, match=r"NoRate.__init__ must take `params` and `lr`"):
        load(file)


def test_python_gives_a_class():
    class Mine(torch.optim.Adagrad):
        pass

    mapping = {
        "rounds": 2,
        "nodes": {"clusters": [6]},
        "algorithm": {"name": "el"},
        "model": {"name": "linear"},
        "data": {"name": "synthetic_regression"},
        "partition": {"name": "random"},
        "training": {"optimizer": {"name": Mine, "lr_decay": 0.5}, "learning_rate": 0.1},
    }
    assert from_mapping(mapping).training.optimizer.lr_decay == 0.5


def test_written_optimizer_keys_equal_torchs():
    for part in (SGD, Adam, AdamW, Muon):
        torchs = part_of(getattr(torch.optim, part.__name__))
        of_adamw = {"adamw_rate", "betas"} if part is Muon else set()
        assert {field.name for field in keys_of(part)} == {field.name for field in keys_of(torchs)} | of_adamw
        assert all(getattr(part(), field.name) == getattr(torchs(), field.name) for field in keys_of(torchs))


def test_every_key_of_torch_optimizers_may_be_a_key_of_training():
    found = {field.name for name in OPTIMIZERS for field in keys_of(OPTIMIZERS[name])}
    assert OPTIMIZER_KEYS - found <= {"adjust_lr_fn", "ns_coefficients", "ns_steps", "decoupled_weight_decay"}
    assert found - NOT_KEYS <= OPTIMIZER_KEYS


def test_sgd_adam_and_adamw_are_checked_without_torch():
    code = (
        f"import sys; from ddlsim.scenario import load; load({str(SMOKE)!r}, ('training.optimizer=adamw',"
        "'training.schedule=cosine')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
