"""Classes named by file in a scenario: search path, errors and records."""

import json
import subprocess
import sys

import jsonschema
import pytest
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.cli import app
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import digest, json_schema, load, to_yaml
from ddlsim.scenario.model import to_plain


def test_a_class_in_a_file_is_named_relative_to_the_scenario(write):
    scenario = load(write(folder="deep"))
    assert type(scenario.algorithm).__name__ == "Mine" and scenario.algorithm_name == "Mine"


def test_on_the_command_line_the_path_is_relative_to_the_working_directory(write):
    write()
    scenario = load(write(folder="deep"), ["algorithm={name: ./mine.py:Mine, every: 3}"])
    assert scenario.algorithm.every == 3 and "/deep/" not in to_yaml(scenario)


def test_paths_of_an_extended_file_are_relative_to_that_file(write, here):
    write(folder="base")
    (here / "s.yaml").write_text("extends: base/s.yaml\nrounds: 5\n")
    assert str(here / "base" / "mine.py:Mine") in to_yaml(load("s.yaml"))


def test_keys_of_user_classes_are_checked_like_builtin_ones(write):
    with pytest.raises(ScenarioError, match=r"algorithm.evry: unknown key 'evry'. Did you mean 'every'\?"):
        load(write(), ["algorithm.evry=3"])
    with pytest.raises(ScenarioError, match=r"algorithm.every: expected a whole number, got 'x'"):
        load(write(), ["algorithm.every=x"])


@pytest.mark.parametrize(
    ("default", "text"),
    [
        ("None", r"every of Mine is None by default, or .*its annotation does not allow: .* Write `every: ... \| None"),
        ("0.5", r"mine.py:\d+: every of Mine is 0.5 by default, or .*its annotation does not allow: .*integer"),
    ],
)
def test_default_violating_its_annotation_is_an_error_before_the_run(write, here, default, text):
    path = write()
    (here / "mine.py").write_text((here / "mine.py").read_text().replace("every: int = 1", f"every: int = {default}"))
    with pytest.raises(ScenarioError, match=text):
        load(path)
    assert load(path, ["algorithm.every=2"]).algorithm.every == 2


def test_error_of_a_name_with_a_colon_shows_the_form_of_a_file(write):
    with pytest.raises(ScenarioError, match=r"unknown name 'no_such:Mine'.*\./mine\.py:Mine"):
        load(write(), ["algorithm={name: 'no_such:Mine'}"])


@pytest.mark.parametrize(
    ("more", "name", "text"),
    [
        ("", "./nix.py:Mine", r"algorithm.name: nix.py: no such file. The path is relative to"),
        ("", "./mine.py:Other", r"mine.py has no class Other. Classes in it: State, Mine"),
        ("", "./mine.py", r"expected the path of a file and the name of a class in it \(./mine.py:Mine\)"),
        ("\nNone.nix\n", "./mine.py:Mine", r"importing mine.py raises mine.py:33: AttributeError: .* \(None.nix\)"),
        ("\ndef f(:\n", "./mine.py:Mine", r"importing mine.py raises mine.py:33: SyntaxError: invalid syntax"),
        ("\nimport nix_nix\n", "./mine.py:Mine", r"mine.py:33: ModuleNotFoundError: No module named 'nix_nix'"),
        (
            "\nclass Bare:\n    pass\n",
            "./mine.py:Bare",
            r"mine.py:33: Bare must extend ddlsim.algorithms.base.Algorithm",
        ),
        (
            "\nclass Half(Algorithm):\n    def start(self, node):\n        return 1\n",
            "./mine.py:Half",
            r"mine.py:33: Half does not define round, serving; ddlsim.algorithms.base.Algorithm says",
        ),
        ("\nclass Sub(Mine):\n    def __init__(self):\n        1 / 0\n", "./mine.py:Sub", r"mine.py:35: ZeroDivision"),
    ],
)
def test_unavailable_class_is_one_clear_error(write, more, name, text):
    scenario = write(more)
    with pytest.raises(ScenarioError, match=text) as caught:
        load(scenario, [f"algorithm={{name: '{name}'}}"])
    assert len(caught.value.problems) == 1


def test_error_names_the_line_of_the_scenario(write, here):
    write()
    (here / "s.yaml").write_text((here / "s.yaml").read_text().replace("mine.py", "nix.py"))
    with pytest.raises(ScenarioError, match=r"s.yaml:3:19: algorithm.name: nix.py: no such file"):
        load("s.yaml")


def test_file_can_import_its_neighbors(write, here):
    (here / "beside_mine.py").write_text("EVERY = 7\n")
    scenario = load(write("\nimport beside_mine\n\nclass Sub(Mine):\n    seven = beside_mine.EVERY\n"))
    assert load("s.yaml", ["algorithm={name: ./mine.py:Sub}"]).algorithm.seven == 7 and scenario.algorithm.every == 1


def test_every_kind_of_part_can_be_defined_in_a_file(write):
    more = """
    from ddlsim.churn import CHURNS
    from ddlsim.data import DATASETS, PARTITIONS, SHIFTS
    from ddlsim.devices import DEVICES
    from ddlsim.network.messages.compression import COMPRESSIONS
    from ddlsim.models import MODELS
    from ddlsim.network import LINKS
    from ddlsim.topologies import TOPOLOGIES

    bases = {
        "M": MODELS["mlp"], "D": DATASETS["fashion-mnist-mini"], "P": PARTITIONS["random"], "S": SHIFTS["none"],
        "T": TOPOLOGIES["ring"], "L": LINKS["uniform"], "V": DEVICES["constant"], "C": CHURNS["exponential"],
        "Z": COMPRESSIONS["float16"],
    }
    for name, base in bases.items():
        globals()[name] = dataclass(frozen=True, kw_only=True)(type(name, (base,), {"__module__": __name__}))
    """
    keys = {"M": "model", "D": "data", "P": "partition", "S": "shift", "T": "topology", "L": "network.links"}
    keys |= {"V": "devices", "C": "churn", "Z": "network.compression"}
    path = write(more)
    sets = [f"{key}.name=./mine.py:{name}" for name, key in keys.items()]
    sets += ["network.links.uplink_mbps=1", "network.links.downlink_mbps=1", "network.links.latency_ms=1"]
    scenario = load(path, [*sets, "devices.step_time_s=0.1", "churn.mean_online_s=9", "churn.mean_offline_s=9"])
    plain = to_plain(scenario)
    found = {name: plain[key.split(".")[0]] for name, key in keys.items()}
    found |= {"L": plain["network"]["links"], "Z": plain["network"]["compression"]}
    assert all(part["name"].endswith(f"mine.py:{name}") for name, part in found.items())


def test_models_of_a_mixed_model_can_be_defined_in_a_file(write):
    more = "\nfrom ddlsim.models.cnn import MLP\n\n@dataclass(frozen=True, kw_only=True)\nclass Net(MLP):\n    pass\n"
    mixed = "model={name: mixed, models: [mlp, {name: ./mine.py:Net, hidden: [4]}]}"
    scenario = load(write(more), [mixed])
    assert scenario.model.assignment(3, 0) == ["mlp", "Net", "mlp"]
    with pytest.raises(ScenarioError, match=r"Net has no key 'hiden'"):
        load("s.yaml", [mixed.replace("hidden", "hiden")])


@pytest.mark.full
def test_schema_accepts_a_path_with_its_keys(write):
    schema = json_schema()
    part = {"$schema": schema["$schema"], "$ref": "#/$defs/algorithm", "$defs": schema["$defs"]}
    jsonschema.validate({"name": "./mine.py:Mine", "whatever": 1}, part)
    for wrong in ({"name": "mine"}, {"name": "el", "whatever": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, part)


# -- records of a run -------------------------------------------------------------------------------------------------


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


def plugin(path, here, **options):
    runs.run(load(path, ["learning=none"]), out=here / "run", **options)
    (found,) = json.loads((here / "run" / "manifest.json").read_text())["plugins"]
    return found


def test_manifest_contains_file_digest_and_git_state(write, here):
    path = write(folder="repo")
    assert plugin(path, here)["git"] is None
    git(here / "repo", "init", "-q")
    git(here / "repo", "add", ".")
    git(here / "repo", "commit", "-qm", "x")
    first = plugin(path, here, force=True)
    assert first["path"] == str(here / "repo" / "mine.py") and len(first["sha256"]) == 64
    assert first["git"]["dirty"] is False and len(first["git"]["commit"]) == 40
    with (here / "repo" / "mine.py").open("a") as file:
        file.write("# changed\n")
    second = plugin(path, here)  # without force: the earlier run used different code
    assert second["git"] == {**first["git"], "dirty": True} and second["sha256"] != first["sha256"]


def test_the_resolved_scenario_runs_again_from_anywhere(write, here, monkeypatch):
    summary = runs.run(load(write(), ["learning=none"]), out=here / "run")
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    again = runs.run(load(here / "run" / "scenario.yaml"), out=elsewhere / "run")
    assert again["bytes"] == summary["bytes"] and summary["bytes"]["total"] > 0


def test_a_changed_file_is_another_run_and_a_moved_one_the_same(write, here):
    first = digest(load(write()))
    assert digest(load(write(folder="moved"))) == first
    assert digest(load(write("# changed\n"))) != first


def test_run_directory_is_named_by_the_class(write, here):
    runs.run(load(write(), ["learning=none"]))
    (made,) = (here / "runs" / "s").iterdir()
    assert made.name.startswith("Mine-s0-")


@pytest.mark.parametrize("text", ["import beside_them", "def f():\n    from beside_them import HOW"])
def test_neighbor_of_another_file_is_refused(write, here, monkeypatch, text):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("one", "other"):
        write(text, folder=folder)
        (here / folder / "beside_them.py").write_text(f"HOW = {folder!r}\n")
    load("one/s.yaml")
    message = r"mine\.py imports beside_them and gets one/beside_them\.py, .*another name"
    try:
        with pytest.raises(ScenarioError, match=message):
            load("other/s.yaml")
        (here / "other" / "beside_them.py").unlink()
        load("other/s.yaml")
    finally:
        sys.modules.pop("beside_them", None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("state.nix", "The run failed: mine.py:36: AttributeError: 'State' object has no attribute 'nix' (state.nix)"),
        ("node.send(node.peers(0), 0, x={1})", "mine.py:36: message: content x: expected parameters"),
    ],
)
def test_fatal_error_names_the_line_of_the_file(write, line, said):
    body = f"    def round(self, node, state, round_num):\n        {line}\n        yield node.sleep(1.0)\n"
    path = write(f"\n@dataclass(frozen=True, kw_only=True)\nclass Sub(Mine):\n{body}")
    words = ["run", path, "--set", "algorithm={name: ./mine.py:Sub}", "--out", "failed", "-q"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and result.stderr.startswith(said), result.stderr
