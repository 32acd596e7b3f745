"""Size of the HTML page of large runs, and the CPU time of reading, sections and printing; records are synthesized.

PYTHONPATH=tests/helpers python benches/report_page.py
"""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from synthetic_run import write_run

from ddlsim.report.html.page import printed, run_page
from ddlsim.report.reading import read

print("| records, synthesized | page | CPU time: reading, sections, printing |\n|---|---|---|")
for nodes, rounds in ((32, 1200), (1000, 200)):
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", nodes, rounds)
        num_bytes = sum(path.stat().st_size for path in run.iterdir())
        clock = [time.process_time()]
        records = read(run)
        clock.append(time.process_time())
        page = run_page(records)
        clock.append(time.process_time())
        text = printed(page)
        clock.append(time.process_time())
    times = ", ".join(f"{after - before:.2f} s" for before, after in pairwise(clock))
    size = f"{len(text.encode()) / 1e3:.0f} kB"
    print(f"| {nodes:,} nodes, {rounds:,} rounds ({num_bytes / 1e6:.1f} MB) | {size} | {times} |")
