"""What runs show: pure functions of the records in run directories; nothing here starts a simulation."""

from ddlsim.report.comparing.tables import compare
from ddlsim.report.depth import report

__all__ = ["compare", "report"]
