"""Sections of a report of one run: pure functions of its records, a file for each part of the report.

`sections` puts them in order, and leaves out those without records.
"""

from ddlsim.report.records import Records
from ddlsim.report.section import Section
from ddlsim.report.sections.about import Context, about_run
from ddlsim.report.sections.churn import churn_sections, energy_sections
from ddlsim.report.sections.peers import peer_sections
from ddlsim.report.sections.quality import quality_sections
from ddlsim.report.sections.traffic import traffic_sections

__all__ = ["Context", "sections"]


def sections(records: Records, summary: dict, context: Context | None = None) -> list[Section]:
    """Return all sections of a run.

    Args:
        records: of the run.
        summary: see summary.py.
        context: information that is not in the records.
    """
    return [
        *quality_sections(records, summary),
        *traffic_sections(records),
        *energy_sections(records),
        *churn_sections(records),
        *peer_sections(records),
        *about_run(records, summary, context or Context()),
    ]
