"""Reports on runs: pure functions of the records in run directories; nothing here starts a simulation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.report.comparing.tables import compare
    from ddlsim.report.run_report import report

__all__ = ["compare", "report"]


def __getattr__(name: str) -> Any:
    """Imported when it is used first: a run needs a few files of this subpackage, and none of these."""
    if name == "compare":
        from ddlsim.report.comparing.tables import compare

        return compare
    if name == "report":
        from ddlsim.report.run_report import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
