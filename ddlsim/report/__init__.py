"""What runs show: pure functions of the records in run directories; nothing here starts a simulation."""

from ddlsim.report.comparison import compare
from ddlsim.report.depth import report

__all__ = ["compare", "report"]
