import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import load


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("topology: {degree: 9}", "7:20: topology.degree: must be below the number of nodes (8), got 9."),
        ("topology: {name: star, center: 8}", "7:32: topology.center: node ids are 0..7, got 8."),
        ("devices: {name: per_node, step_times_s: [1, 2]}", "7:41: devices.step_times_s: expected 8 values, one per"),
        (
            "churn: {name: schedule, offline: [{node: 8, start_s: 0, end_s: 1}]}",
            "7:42: churn.offline[0].node: node ids",
        ),
        (
            "churn: {name: schedule, offline: [{node: 1, start_s: 2, end_s: 1}]}",
            "7:64: churn.offline[0].end_s: must lie",
        ),
        ("shift: {name: rotate, degrees: [0, 1, 2]}", "7:32: shift.degrees: expected one entry for each of the 2"),
        (
            "partition: {name: label_clusters, labels: [[0]]}",
            "7:43: partition.labels: expected 2 lists, one per cluster",
        ),
        ("evaluation: {target: 70}", "7:22: evaluation.target: accuracy is a share, 0 to 1; write 0.7 for 70 %"),
        ("evaluation: {stop_at_target: true}", "7:30: evaluation.stop_at_target: needs evaluation.target_accuracy"),
        ("network: {links: {name: mix, parts: []}}", "7:37: network.links.parts: expected at least one"),
    ],
)
def test_incompatible_keys_are_refused(problems, more, message):
    (found,) = problems(more=more + "\n")
    assert found.startswith(f"test.yaml:{message}")


@pytest.mark.parametrize("model", ["{name: linear}", "{name: mlp, hidden: []}", "{name: mixed, models: [mlp, linear]}"])
def test_separate_core_and_head_need_a_core(problems, model):
    text = f"rounds: 3\nnodes: {{clusters: [5]}}\nalgorithm: {{name: facade}}\nmodel: {model}\n"
    (found,) = problems(text=text + "data: {name: fashion-mnist-mini}\ntraining: {learning_rate: 0.1}\n")
    name = model.split(":")[1].strip(" }").split(",")[0]
    expected = f"this {name} has no core apart from its head, and facade separates them"
    assert found.startswith(f"test.yaml:4:15: model.name: {expected}")


def test_tied_embeddings_need_an_algorithm_that_sends_models_whole(problems):
    tied = ["model={name: gpt, tie_word_embeddings: true}", "data={name: shakespeare}"]
    found = problems(sets=[*tied, "algorithm={name: facade}"])
    assert any("this gpt has no core apart from its head, and facade separates them" in each for each in found)


def test_link_attributes_of_a_topology_are_refused(problems, write, here):
    (here / "net.edges").write_text("0 1 5 20\n1 2 5 20\n")
    sets = ["nodes={clusters: [3]}", "algorithm={name: dpsgd}", "topology={name: file, path: net.edges}"]
    (found,) = problems(sets=sets)
    assert "topology: edges have bandwidth_mbps and latency_ms, which network.links does not use" in found
    load(write(), [*sets, "network.links={name: routed, path: net.edges}"])
    load(write(), [*sets, "algorithm={name: fedavg}"])  # the topology is unused
    (here / "net.edges").write_text("0 1\n1 2 {'weight': 2}\n")
    load(write(), sets)


def test_models_given_as_sizes_need_a_core(problems):
    (found,) = problems(sets=["learning=none", "model={name: sizes, core: 0}"])
    assert "model.name: this sizes has no core apart from its head" in found


@pytest.mark.parametrize("algorithm", ["mapl", "fedproto", "fedclassavg"])
def test_losses_of_classes_need_classes(problems, algorithm):
    data = "data={name: synthetic_regression}"
    (found,) = problems(sets=[data, "partition={name: domains}", f"algorithm={{name: {algorithm}}}"])
    assert "algorithm.name: needs classes, but synthetic_regression is a regression. Use one of: el" in found


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("oracle, deluded: 1, deluded_cluster: 2", "deluded_cluster: expected a cluster from 0 to 1, got 2"),
        ("oracle, deluded: 4, deluded_cluster: 1", "deluded: expected at most 3, all of the cluster, got 4"),
        ("dac, record_similarities: [7, 8]", "record_similarities: expected node ids from 0 to 7, got 8"),
    ],
)
def test_nodes_and_clusters_named_by_an_algorithm_must_exist(problems, algorithm, message):
    (found,) = problems(sets=[f"algorithm={{name: {algorithm}}}"])
    assert f"algorithm.{message}" in found


def test_topology_replaced_by_a_server_is_not_checked(write, problems):
    few = ["nodes.clusters=[3]", "learning=none"]
    assert load(write(), [*few, "algorithm={name: fedavg}"]).nodes.count == 3
    (found,) = problems(sets=[*few, "algorithm={name: el}"])
    assert "topology.degree: must be below the number of nodes (3)" in found


def test_odd_degree_on_an_odd_number_of_nodes_is_refused(problems):
    (found,) = problems(sets=["nodes.clusters=[5]", "topology.degree=3"])
    assert found.startswith("--set topology.degree=3: topology.degree: degree x nodes must be even")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["training.epochs=1", "training.local_steps=2"], "training.epochs: a round has a number of epochs or"),
        (["training.optimizer_state=kept"], "training.optimizer_state: sgd without momentum has no state"),
        (["training.early_stopping={patience: 3}"], "training.early_stopping: needs validation samples, but"),
        (["evaluation.evaluated_model=best"], "evaluation.evaluated_model: needs validation samples, but"),
    ],
)
def test_contradictory_local_training_is_refused(problems, sets, message):
    (found,) = problems(sets=sets)
    assert message in found


def test_data_of_no_domains_cannot_be_dealt_by_domain_even_to_one_cluster(problems):
    sets = ["nodes.clusters=[4]", "shift={name: none}", "partition={name: domains}", "algorithm={name: el}"]
    message = "partition.name: deals one domain to each cluster; fashion-mnist-mini has none"
    assert any(message in found for found in problems(sets=sets))


def test_probability_below_float_precision_is_refused(problems):
    (found,) = problems(sets=["topology={name: erdos_renyi, edge_probability: 1e-17, connected: false}"])
    assert "topology.edge_probability: expected 1e-15 or more, got 1e-17" in found


def test_a_learning_rate_beyond_single_precision_is_refused(problems):
    (found,) = problems(sets=["training.learning_rate=1e300"])
    assert "training.learning_rate: expected a number of at most 1e+30" in found


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["shift={name: color}"], "channels"),
        (
            ["validation={source: test, fraction: 0.0001}"],
            "validation.fraction: 0.0001 of 2000 test samples leaves one",
        ),
        (
            ["validation={source: train, fraction: 0.9999}"],
            "validation.fraction: 1 training samples are fewer than the 8 nodes",
        ),
        (
            ["validation={source: node, fraction: 0.9999}"],
            "validation.fraction: 0.9999 of a node's 1250 samples or fewer leaves none",
        ),
        (["validation.seed=7"], "validation.seed: chooses among samples, and source none leaves nothing to choose"),
        (
            ["validation={source: node, seed: 7}", "partition={name: uniform}"],
            "validation.seed: with source node it needs a partition that deals at random: random, domains",
        ),
        (["nodes.clusters=[10001]"], "nodes.clusters: 10000 training samples are fewer than the 10001 nodes"),
    ],
)
def test_splits_are_checked_by_known_sizes_before_data_is_read(problems, sets, message):
    assert any(message in found for found in problems(sets=sets))


@pytest.mark.parametrize(
    ("source", "data", "wrong"),
    [
        ("node", "data.stride=8", 1),
        ("train", "data.stride=8", 1),
        ("test", "data.stride=8", 0),
        ("node", "data.stride=80", 0),
        ("train", "data={name: shakespeare, text: leaf}", 1),
        ("test", "data={name: shakespeare, text: leaf}", 0),
    ],
)
def test_overlapping_samples_cannot_be_set_aside(source, data, wrong):
    validation = f"validation={{source: {source}, fraction: 0.2}}"
    found = [problem.text for problem in _problems_of("scenarios/shakespeare_lstm.yaml", data, validation)]
    assert sum("samples of shakespeare overlap" in text for text in found) == wrong


@pytest.mark.parametrize(("shift", "wrong"), [("color", 1), ("rotate", 0)])
def test_augmentation_needs_the_order_of_channels(shift, wrong):
    sets = f"shift={{name: {shift}}}", "training.augmentation=crop_flip", "data={name: cifar10}"
    found = [problem.text for problem in _problems_of("scenarios/smoke.yaml", *sets)]
    assert sum("this shift reorders channels" in text for text in found) == wrong


@pytest.mark.parametrize(
    ("data", "no_images"), [("heart_disease", True), ("shakespeare", True), ("fashion-mnist-mini", False)]
)
def test_only_images_are_augmented_or_rotated(data, no_images):
    sets = f"data={{name: {data}}}", "training.augmentation=crop_flip", "shift={name: rotate}"
    found = [problem.text for problem in _problems_of("scenarios/smoke.yaml", *sets)]
    assert (f"only none fits samples that are not images ({data})" in found) is no_images
    assert any(text.startswith(f"changes images, and {data} holds none.") for text in found) is no_images


@pytest.mark.parametrize(("tokens", "wrong"), [(80, 1), (81, 0)])
def test_model_needs_all_tokens_of_the_data(tokens, wrong):
    found = [problem.text for problem in _problems_of("scenarios/shakespeare_lstm.yaml", f"model.tokens={tokens}")]
    assert found == ["expected at least 81, the tokens of the data, got 80. Raise it or leave it out."] * wrong


@pytest.mark.parametrize(("vocabulary", "wrong"), [(2, 1), (3, 0)])
def test_vocabulary_has_at_least_three_tokens(vocabulary, wrong):
    found = [problem.text for problem in _problems_of("scenarios/ag_news.yaml", f"data.vocabulary={vocabulary}")]
    assert found == ["expected a number of at least 3, got 2"] * wrong


@pytest.mark.parametrize(("name", "wrong"), [("fedproto", 1), ("fedclassavg", 1), ("mapl", 1), ("fedsim", 0)])
def test_dp_sgd_needs_an_algorithm_with_the_loss_of_the_task(name, wrong):
    private = "privacy={kind: dp_sgd, clip: 1.0, noise_multiplier: 1.0}"
    problems = _problems_of("scenarios/smoke.yaml", f"algorithm={{name: {name}}}", private)
    found = [problem.text for problem in problems if problem.path == "privacy.kind"]
    assert len(found) == wrong and all("trains with another loss than the task's" in text for text in found)


def _problems_of(path, *sets):
    try:
        load(path, sets)
    except ScenarioError as error:
        return getattr(error, "problems", [])
    return []
