"""The page of one run: its sections, with the numbers that are looked for first, and what must be read before them."""

from ddlsim.report.html.page import Page, Tile
from ddlsim.report.records import Records
from ddlsim.report.sections import Context, sections
from ddlsim.report.summary import summary_of
from ddlsim.report.summary_table import costs_text, loud_lines
from ddlsim.report.text import bytes_text, grams_text, joules_text, number_text, percent_text, seconds_text
from ddlsim.tasks.metric import Metric


def run_page(records: Records, context: Context | None = None) -> Page:
    """What a report of these records shows.

    Args:
        records: of the run, which may be still going on or have been killed.
        context: what the records alone cannot tell.
    """
    summary = summary_of(records)
    data = f"{summary['data']['name']}{' (fallback)' if summary['data']['fallback'] else ''}"
    parts = [f"{summary['algorithm']}", f"{summary['nodes']} nodes", data, f"seed {summary['seed']}", records.status]
    return Page(
        str(summary["scenario"]),
        sections(records, summary, context),
        " · ".join(parts),
        tiles(summary),
        notes(records, summary),
        f"Made by ddlsim from the records in {records.directory.name}; curves by uPlot (MIT license).",
        records.status != "running",
    )


def tiles(summary: dict) -> list[Tile]:
    """Quality, fairness and costs."""
    metric, judged_by = summary["metric"], Metric(**summary["judged_by"])
    found, of = [], summary.get("honest") or summary
    if summary[metric]["all"] is not None:
        name, unit = judged_by.words[:1].upper() + judged_by.words[1:], " %" if judged_by.share else ""
        per_cluster = of[metric]["clusters"] or []
        values = [judged_by.text(value) for value in per_cluster]
        remark = (
            "all nodes" if len(values) < 2 else f"clusters {' · '.join(values[:6])}{' …' if len(values) > 6 else ''}"
        )
        remark = f"{len(of['nodes'])} honest nodes, {remark}" if "honest" in summary else remark
        found.append(Tile(name, judged_by.text(of[metric]["all"]) + unit, remark))
        if of.get("fair_accuracy") is not None and len(per_cluster) > 1:
            remark = f"DP {number_text(of['demographic_parity'])}, EO {number_text(of['equalized_odds'])}"
            found.append(Tile("Fair accuracy", f"{percent_text(of['fair_accuracy'])} %", remark))
    rounds, reached = summary["rounds"], summary["evaluated_round"]
    found.append(Tile("Rounds", f"{rounds:,}" if rounds else "-", f"evaluated up to {reached}" if reached else ""))
    remark = ("estimated, " if "sim_time_s" in summary["estimated"] else "") + f"wall {seconds_text(summary['wall_s'])}"
    found.append(Tile("Simulated time", seconds_text(summary["sim_time_s"]), remark))
    wasted = summary["bytes"]["wasted"]
    remark = "" if wasted is None else f"{bytes_text(wasted)} wasted"
    found.append(Tile("Bytes sent", bytes_text(summary["bytes"]["total"]), remark))
    energy = summary.get("energy")
    if energy is not None and energy["joules"] is not None:
        remark = "estimated" if energy["gco2"] is None else f"estimated, {grams_text(energy['gco2'])} CO2e"
        found.append(Tile("Energy", joules_text(energy["joules"]), remark))
    target = summary["target"]
    if target[metric] is not None and summary["timetable"] is None:
        name = f"To {judged_by.text(target[metric])}{' %' if judged_by.share else ''}"
        if target["reached"]:
            remark = costs_text(target)
            found.append(Tile(name, f"round {target['round']}", remark))
        else:
            found.append(Tile(name, "not reached"))
    return found


AT_THE_END = ("communication.jsonl", "links.jsonl", "contents.jsonl")


def notes(records: Records, summary: dict) -> list[str]:
    """What must be read before any number; of a run that did not come to its end also what is missing below."""
    found = loud_lines(summary)
    absent = [name for name in AT_THE_END if not (records.directory / name).is_file()]
    if records.status != "done" and absent:
        found[-1] += f"; not (yet) written, so that what they hold is missing below: {', '.join(absent)}"
    return found
