"""The table of runs, as `ddlsim compare` prints it."""

from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.tables import table_of
from ddlsim.report.summary import read_all


def compare(run_dirs, format="text", on_damaged=None, by=None, target=None):
    """Return the table; the arguments are those of `read_all`, `compared` and `table_of`."""
    return table_of(compared(list(read_all(run_dirs, on_damaged)), by, target), format, by is not None, by)
