"""Shell completion of commands."""

from ddlsim.cli import options


def test_a_scenario_is_completed_by_name_and_by_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke_mine.yaml").touch()
    (tmp_path / "smoke_notes.txt").touch()
    (tmp_path / "smoke_folder").mkdir()
    assert options.complete_scenarios("smo") == ["smoke", "smoke_folder/", "smoke_mine.yaml"]


def test_a_matrix_is_completed_and_a_scenario_is_not_offered_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    offered = options.complete_matrices("")
    assert "facade_table_cifar10" in offered and "smoke" not in offered


def test_names_of_parts_are_completed():
    assert options.complete_settings("algorithm=fac") == ["algorithm=facade"]
    assert options.complete_settings("algorithm.name=fac") == ["algorithm.name=facade"]
    assert options.complete_settings("training.learning_rate=") == []
