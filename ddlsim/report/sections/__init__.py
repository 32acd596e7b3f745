"""Sections of a report of one run: pure functions of its records, a file for each part of the report.

`sections` puts them in order, and leaves out those without records.
"""

from collections.abc import Mapping
from typing import Any

from ddlsim.report.records import Records
from ddlsim.report.section import Section
from ddlsim.report.sections import churn, timeline
from ddlsim.report.sections.about import about_run
from ddlsim.report.sections.peers import peer_sections
from ddlsim.report.sections.quality import quality_sections
from ddlsim.report.sections.traffic import traffic_sections


def sections(records: Records, summary: dict, defaults: Mapping[str, Any] | None = None) -> list[Section]:
    """Return all sections of a run.

    Args:
        records: of the run.
        summary: see summary.py.
        defaults: dotted key of the scenario -> its default, of those keys that have one; None if unknown.
    """
    return [
        *quality_sections(records, summary),
        *timeline.uses(records),
        *timeline.timeline(records, summary),
        *traffic_sections(records),
        *churn.energy_by_purpose(records),
        *churn.churn_sections(records),
        *peer_sections(records),
        *about_run(records, summary, defaults),
    ]
