"""What is wrong with a scenario, each with its place, and the one error that tells all of it."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddlsim.errors import ScenarioError

MOST_SHOWN, MOST_TEXT = 200, 1000
"""Characters of a source line, an option or a path, and of an explanation, that a message shows."""


@dataclass(frozen=True)
class Mark:
    """A place: in a file, or an option of the command line.

    Args:
        source: the file's path as given, or the option, e.g. "--set rounds=0".
        line: line from 1; None for an option.
        column: column from 1.
        text: the whole source line.
    """

    source: str
    line: int | None = None
    column: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        source = cut(self.source)
        return source if self.line is None else f"{source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Args:
        mark: where it was written.
        path: dotted path of the key, or "" for the file as a whole.
        text: what was expected, what came, what to do.
    """

    mark: Mark
    path: str
    text: str

    def __str__(self) -> str:
        head = f"{self.mark}: " + (f"{cut(self.path)}: " if self.path else "") + cut(self.text, MOST_TEXT)
        if self.mark.line is None or self.mark.column is None or self.mark.text is None:
            return head
        line, column = _around(self.mark.text, self.mark.column)
        # Tabs stay tabs under the text, so that the caret stands under the right character whatever their width.
        indent = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
        return f"{head}\n{self.mark.line:6d} | {line}\n{'':6} | {indent}^"


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """The text, or its two ends where it is longer than that."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def _around(line: str, column: int) -> tuple[str, int]:
    """A source line cut to what stands around a column, and the column in what is left."""
    if len(line) <= MOST_SHOWN:
        return line, column
    start = max(0, column - 1 - MOST_SHOWN // 2)
    end = start + MOST_SHOWN
    left, right = "... " if start else "", " ..." if end < len(line) else ""
    return f"{left}{line[start:end]}{right}", column - start + len(left)


class ScenarioProblems(ScenarioError):
    """Everything that is wrong with one scenario at once.

    Args:
        problems: at least one, in the order in which they are told.
    """

    def __init__(self, problems: Sequence[Problem]):
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Without repetitions, file by file as they came, inside a file from top to bottom."""
    unique = list(dict.fromkeys(problems))
    sources = list(dict.fromkeys(problem.mark.source for problem in unique))
    return sorted(unique, key=lambda p: (sources.index(p.mark.source), p.mark.line or 0, p.mark.column or 0))


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """The sentence that offers the nearest known name, with a space before it, or nothing."""
    found = difflib.get_close_matches(str(wrong), list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""
