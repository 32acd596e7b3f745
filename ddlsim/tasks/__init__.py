"""Tasks by name: their losses, their metrics, and the better direction of each metric.

To add one: a file with a frozen dataclass derived from base.py's Task (fields = YAML keys), and a line in this table.
torch is imported inside its methods, so listing and checking need none.
"""

from functools import lru_cache

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Registry
from ddlsim.tasks.base import Task

TASKS = Registry(
    "task",
    __name__,
    {
        "classification": ".builtin:Classification",
        "regression": ".builtin:Regression",
        "next_token": ".builtin:NextToken",
        "multi_label": ".builtin:MultiLabel",
    },
    contract=".base:Task",
)


@lru_cache(maxsize=64)
def task_named(name: str) -> Task:
    """The task of this name, with its default keys.

    Raises:
        ScenarioError: if no task has this name.
    """
    try:
        return TASKS[name]()
    except KeyError:
        raise ScenarioError(f"task: unknown name {name!r}. Known: {', '.join(TASKS)}.") from None


def as_task(task: Task | str) -> Task:
    """A task, or the one of this name with its default keys."""
    return task_named(task) if isinstance(task, str) else task


def label_of(task: Task) -> str:
    """A task's name for people, such as `multi-label` in a sentence."""
    return TASKS.label_of(task).replace("_", " ")


__all__ = ["TASKS", "Task", "as_task", "label_of", "task_named"]
