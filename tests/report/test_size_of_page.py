"""Pages of large runs stay below a megabyte."""

import pytest
from synthetic_run import write_run

from ddlsim.report.html.page import run_page, write
from ddlsim.report.reading import read


@pytest.mark.full
def test_page_of_1200_rounds_of_32_nodes_is_below_a_megabyte(tmp_path):
    page = run_page(read(write_run(tmp_path / "run", 32, 1200)))
    assert write(page, tmp_path / "report.html").stat().st_size < 500_000
    assert {"contacts", "heads", "online"} <= {section.key for section in page.sections}


@pytest.mark.full
def test_page_of_1000_nodes_shows_them_in_blocks(tmp_path):
    page = run_page(read(write_run(tmp_path / "run", 1000, 20, every=10)))
    assert write(page, tmp_path / "report.html").stat().st_size < 500_000
    nodes = next(section for section in page.sections if section.key == "nodes")
    # clusters of 938 and 62 nodes, at most 64 rows: 59 and 4 blocks of 16
    assert len(nodes.figure.rows) == 63
    assert nodes.notes == ["1,000 nodes are shown in 63 blocks."]
