"""The live page of a run: loopback only, new versions only, no other host names."""

import http.client
import os
import socket

import pytest

from ddlsim.cli.report import with_port
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.html import live
from ddlsim.report.html.live import LivePage, LiveServer, live_page
from ddlsim.report.html.page import Page, run_page
from ddlsim.report.reading import read


def made(directory) -> Page:
    return run_page(read(directory))


@pytest.fixture
def server(monkeypatch):
    found = LiveServer(made, 0)
    yield found
    monkeypatch.setattr(live, "LAST_LOOK_S", 0.0)  # no browser fetches the last state
    found.close()


def ask(server, path, host=None):
    port = int(server.address.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_page_is_served_with_its_version(server, make_run):
    server.show(make_run(status="running"))
    status, text, headers = ask(server, "/")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "Accuracy of each cluster" in text and "connect-src 'self'" in text and 'data-ended="false"' in text


def test_page_is_renewed_only_after_changed_records(server, make_run):
    directory = make_run()
    server.show(directory)
    version = ask(server, "/")[1].partition('data-version="')[2].partition('"')[0]
    assert ask(server, f"/page?after={version}")[0] == 204
    (directory / "links.jsonl").touch()
    server.page._rests_until_s = 0.0
    assert ask(server, f"/page?after={version}")[0] == 200


def test_making_pages_takes_a_small_part_of_the_time(make_run):
    made_pages = []
    page = LivePage(lambda directory: made_pages.append(1) or made(directory))
    page.directory = make_run()
    page.newest()
    for name in ("links.jsonl", "contents.jsonl", "contacts.jsonl"):
        (page.directory / name).touch()
        page.newest()
    assert len(made_pages) == 1


def test_run_without_records_is_shown_as_starting(server, tmp_path):
    assert "starting" in ask(server, "/")[1]
    server.show(tmp_path)
    assert "starting" in ask(server, "/")[1] and ask(server, "/page?after=")[0] == 204


def test_other_names_of_the_machine_are_refused(server, make_run):
    server.show(make_run())
    assert ask(server, "/", "evil.example")[0] == 403
    assert ask(server, "/", "evil.example:8484")[0] == 403
    assert ask(server, "/", "localhost:8484")[0] == 200
    assert ask(server, "/etc/passwd")[0] == 404


def test_server_listens_only_on_loopback(server):
    assert server.server_address[0] == "127.0.0.1"


def test_taken_port_is_one_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ScenarioError, match=f"--live {port}: expected a free port"):
            LiveServer(made, port)


def test_port_may_be_left_out():
    assert with_port(["run", "--live", "x.yaml"]) == ["run", "--live=-1", "x.yaml"]
    assert with_port(["run", "x.yaml", "--live", "8000"]) == ["run", "x.yaml", "--live", "8000"]
    assert with_port([]) == []
    assert with_port(["run", "x.yaml", "--live"]) == ["run", "x.yaml", "--live=-1"]


@pytest.mark.parametrize("earlier", [[], [1]])
def test_page_of_a_living_process_has_round_and_remaining_time_and_no_warning(make_run, earlier):
    rows = [row for row in make_run.rows() if row["round"] <= 2]
    process = {"pid": os.getpid(), "host": socket.gethostname()}
    directory = make_run(rows=rows, status="running", process=process, resumed_after_rounds=earlier, wall_s=None)
    for path in directory.iterdir():
        os.utime(path, (1030, 1030))
    os.utime(directory / "manifest.json", (1000, 1000))
    page = live_page(made(directory), read(directory))
    # 30 seconds for two rounds, or for one since the resume; two rounds are left
    left = "about 1m00s left" if earlier else "about 30.0s left"
    assert [(tile.value, tile.remark) for tile in page.tiles if tile.name == "Round"] == [("2 of 4", left)]
    assert not page.loud and "wall" not in repr(page.tiles)


def test_page_of_a_dead_process_keeps_its_warning(make_run):
    directory = make_run(status="running", process={"pid": 2**22 + 1, "host": socket.gethostname()})
    page = live_page(made(directory), read(directory))
    assert page.loud[0].startswith("NOT FINISHED") and "4" in [
        tile.value for tile in page.tiles if tile.name == "Rounds"
    ]
