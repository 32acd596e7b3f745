"""Links from recorded files, each made by hand: FedScale's capacities, Mahimahi's packets, matrices of latencies."""

import pickle

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.devices.base import FedScale as FedScaleDevices
from ddlsim.devices.base import drawn_phones
from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.link_table import with_server
from ddlsim.network.trace_links import FedScale, LatencyMatrix, Mahimahi, read_latencies, read_opportunities
from ddlsim.scenario import from_mapping


@pytest.fixture
def write(tmp_path):
    """Write a file of lines; return its path."""

    def write(name, *lines):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / name)

    return write


@pytest.fixture
def phones(tmp_path):
    """Write a pickle of capacities; return its path."""

    def phones(devices):
        path = tmp_path / "capacity"
        path.write_bytes(pickle.dumps(devices))
        return str(path)

    return phones


def test_a_phone_trains_three_times_its_inference_on_every_sample(phones):
    path = phones({1: {"computation": 50.0, "communication": 8000.0}})
    assert FedScaleDevices(path=path, samples_per_step=8).draw(2, 0).tolist() == pytest.approx([1.2, 1.2])
    assert FedScaleDevices(path=path, samples_per_step=8, time_factor=0.5).draw(1, 0).tolist() == pytest.approx([0.6])


def test_a_phone_has_the_same_rate_in_both_directions_in_kilobits(phones):
    table = FedScale(path=phones({1: {"computation": 50.0, "communication": 8000.0}})).draw(1, 0)
    assert (table.uplink_bytes_per_s[0], table.downlink_bytes_per_s[0]) == (1e6, 1e6)


def test_devices_and_links_of_a_node_come_from_one_phone(phones):
    path = phones({n: {"computation": n, "communication": 1000.0 * n} for n in range(1, 50)})
    ms, kbps = drawn_phones(path, 20, seed=3)
    assert (kbps == 1000 * ms).all() and len(set(ms)) > 10
    more, _ = drawn_phones(path, 30, seed=3)
    assert more[:20].tolist() == ms.tolist()  # adding a node changes no phone of other nodes


def test_changed_file_of_phones_is_read_again(phones):
    for communication in (1000.0, 80_000.0):
        path = phones({1: {"computation": 50.0, "communication": communication, "of": "x" * int(communication / 1e3)}})
        assert drawn_phones(path, 1, 0)[1].tolist() == [communication]


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ({"computation": 1.0}, "communication: Field required"),
        ({"computation": 0, "communication": 1}, "computation: expected greater than 0, got 0"),
        ([1, 2], "expected a valid dictionary, got"),
    ],
)
def test_a_wrong_device_is_named(phones, device, error):
    with pytest.raises(ScenarioError, match=f"device 7: {error}"):
        FedScale(path=phones({7: device})).draw(1, 0)


def test_pickle_that_names_code_is_an_error(phones):
    with pytest.raises(ScenarioError, match="code and not data"):
        FedScale(path=phones({1: np.float64(1.0)})).draw(1, 0)


def test_packets_of_an_interval_give_its_capacity_and_the_trace_repeats(write):
    trace = write("up", 0, 500, 500, 1500, 2000)  # of 2 s; the packet at 0 ms is also the first of the next repetition
    links = Mahimahi(uplinks=(trace,), downlinks=(trace,), duration_s=4.0, random_start=False)
    table = links.draw(1, 0)
    # After 0 ms: 2 packets until 1 s, 1 + the last and the first of the next repetition until 2 s, and so on.
    assert table.uplink_bytes_per_s.tolist() == [3000.0]
    changes = [(change.time_s, change.uplink_bytes_per_s) for change in table.changes]
    assert changes == [(1.0, 4500.0), (2.0, 3000.0), (3.0, 4500.0), (4.0, 1500 * 5 / 2)]


def test_mean_capacity_of_a_trace_is_the_same_for_all_intervals(write):
    rng = np.random.default_rng(0)
    trace = write("up", *np.sort(rng.integers(1, 10_000, 300)), 10_000)
    for interval_s in (0.1, 1.0, 5.0):
        links = Mahimahi(uplinks=(trace,), downlinks=(trace,), interval_s=interval_s, duration_s=10, random_start=False)
        rates = links._rates(read_opportunities(trace), 0)
        assert sum(rates[:-1]) * interval_s == pytest.approx(301 * 1500)
        assert rates[-1] == pytest.approx(301 * 150)


def test_nodes_start_at_different_moments_of_a_trace(write):
    trace = write("up", *range(0, 1000, 7), *range(1000, 9000, 100))
    table = Mahimahi(uplinks=(trace,), downlinks=(trace,), duration_s=20).draw(6, 1)
    assert len(set(table.uplink_bytes_per_s)) > 2


def test_both_directions_start_at_the_same_recorded_moment(write):
    trace = write("both", *range(0, 1000, 7), *range(1000, 9000, 100))
    table = Mahimahi(uplinks=(trace,), downlinks=(trace,), duration_s=20).draw(6, 1)
    assert table.uplink_bytes_per_s.tolist() == table.downlink_bytes_per_s.tolist()
    assert all(change.uplink_bytes_per_s == change.downlink_bytes_per_s for change in table.changes)


@pytest.mark.parametrize(
    ("lines", "said"), [(("1", "x"), "'x'"), (("5", "3"), ":2: expected .* in ascending order, got 3"), ((), "above 0")]
)
def test_invalid_packet_trace_is_refused(write, lines, said):
    with pytest.raises(ScenarioError, match=said):
        read_opportunities(write("bad", *lines))


def test_pings_of_a_pair_are_averaged_and_a_missing_direction_is_the_other_one(write):
    path = write(
        "pings.csv",
        '"source","destination","timestamp","min","avg","max","mdev"',
        '"0","2","2020-07-20 00:00:17.000","9","10","11","0.1"',
        '"0","2","2020-07-20 01:00:17.000","9","30","31","0.1"',
        '"2","0","2020-07-20 00:00:17.000","9","40","41","0.1"',
        '"10","0","2020-07-20 00:00:17.000","9","60","61","0.1"',
    )
    # Sites 0, 2, 10; between 2 and 10 nothing was measured: the median of 20, 40, 60, 60.
    assert read_latencies(path).tolist() == [[0, 20, 60], [40, 0, 50], [60, 50, 0]]


def test_negative_cells_of_a_matrix_are_unmeasured(write):
    assert read_latencies(write("m.csv", "0,10,-1", "20,0,30", "40,50,0")).tolist() == [
        [0, 10, 40],
        [20, 0, 30],
        [40, 50, 0],
    ]


def test_half_of_a_round_trip_is_a_message_s_latency(write):
    path = write("m.csv", "0,10", "20,0")
    latency_s = LatencyMatrix(path=path).draw(2, 0).latency_s
    assert sorted((latency_s(0, 1), latency_s(1, 0))) == [0.005, 0.01]
    one_way = LatencyMatrix(path=path, round_trip=False, same_site_ms=1.0).draw(3, 0).latency_s
    between = [one_way(a, b) for a in range(3) for b in range(3) if a != b]
    assert sorted(set(between)) == [0.001, 0.01, 0.02]  # the third node shares a site


@pytest.mark.parametrize("lines", [(), ("1,2",), ("0,x", "1,0"), ("source,destination,avg", "1,2,-3"), ("5",)])
def test_invalid_latency_file_is_refused(write, lines):
    with pytest.raises(ScenarioError, match="expected"):
        read_latencies(write("bad.csv", *lines))


def test_server_draws_a_separate_site(write):
    links = LatencyMatrix(path=write("sites.csv", "0,10,20,30", "10,0,40,50", "20,40,0,60", "30,50,60,0"))
    beside = with_server(links.draw(3, 0), 1.0).latency_s
    more = links.draw(4, 0).latency_s
    for node in range(3):
        assert beside(node, 3) == beside(3, node) == more(node, 3) > 0.004


def test_messages_to_a_server_take_the_time_of_its_site(write, tmp_path):
    found = runs.run(
        from_mapping(
            {
                "rounds": 3,
                "nodes": {"clusters": [4]},
                "learning": "none",
                "algorithm": {"name": "fedavg"},
                "model": {"name": "sizes", "core": 1, "head": 0},
                "data": {"name": "fashion-mnist-mini"},
                "training": {"learning_rate": 1.0, "local_steps": 1},
                "topology": {"name": "ring"},
                "network": {
                    "fidelity": "latency",
                    "links": {"name": "latency_matrix", "path": write("m.csv", *("200," * 5 + "200",) * 6)},
                },
                "devices": {"name": "constant", "step_time_s": 0.0},
            }
        ),
        out=tmp_path / "run",
    )
    assert found["sim_time_s"] == pytest.approx(0.6, rel=1e-6)  # three rounds, there and back, 100 ms one way
