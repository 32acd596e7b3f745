"""Tables of a run as files, one per table: CSV, or Parquet (the extra `parquet`)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import DataMissing
from ddlsim.report import columns
from ddlsim.report.figures import written_below
from ddlsim.report.text import comma_separated

if TYPE_CHECKING:
    from ddlsim.report.records import Records

TABLES = {
    "evaluations": columns.evaluations,
    "rounds": columns.rounds,
    "messages": columns.messages,
    "links": columns.links,
    "rows": columns.rows,
}


def write_tables(records: "Records", folder: Path, kind: str) -> list[Path]:
    """Write evaluations, rounds, messages, links and rows (everything recorded); those that have rows.

    Args:
        records: of a run.
        folder: folder of the files, created if missing.
        kind: csv or parquet.
    Returns:
        The files.
    Raises:
        DataMissing: for Parquet, if pyarrow is not installed. ScenarioError: if the folder cannot be written to.
    """
    arrow: Any = _need_arrow() if kind == "parquet" else None
    found = []
    with written_below(folder, "--out"):
        for name, make in TABLES.items():
            table = make(records)
            if not len(next(iter(table.values()))):
                continue
            path = folder / f"{name}.{kind}"
            if arrow is not None:
                arrow.parquet.write_table(arrow.table({key: column.tolist() for key, column in table.items()}), path)
            else:
                rows = zip(*(column.tolist() for column in table.values()), strict=True)
                path.write_text(comma_separated(list(table), list(rows)) + "\n", encoding="utf-8")
            found.append(path)
    return found


def _need_arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataMissing("Parquet needs pyarrow, which is not installed: pip install 'ddlsim[parquet]'.") from error
    return pyarrow
