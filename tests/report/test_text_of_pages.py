"""Values written by the scripts of a page, against report/text.py."""

import json
import shutil
import subprocess
from importlib import resources

import pytest

from ddlsim.report.text import seconds_text

SECONDS = [59.95, 59.97, 61.5, 62.5, 63.5, 380, 3599.4, 3599.6, 3629, 3630, 3690, 86369, 86370, 88200, 91800, 1e6]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_durations_on_a_page_equal_the_text():
    script = resources.files("ddlsim.report.html").joinpath("assets", "format.js").read_text()
    asked = f"{script}\nconsole.log(JSON.stringify({SECONDS}.map(FORMATS.seconds)))"
    output = subprocess.run(["node", "-e", asked], capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(output) == [seconds_text(seconds) for seconds in SECONDS]
