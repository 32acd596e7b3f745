"""ddlsim new: templates of a user-defined algorithm, model, data set, task or topology."""

import keyword
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import typer

from ddlsim.foundation.errors import ScenarioError

TEMPLATES = Path(__file__).parent / "templates"
ENDINGS = ("{name}.py", "{name}.yaml", "test_{name}.py")


def new(
    kind: Annotated[Literal["algorithm", "model", "dataset", "task", "topology"], typer.Argument(help="Kind of part.")],
    name: Annotated[str, typer.Argument(help="Its name, such as my_gossip; the class is MyGossip then.")],
) -> None:
    """Write NAME.py, NAME.yaml and test_NAME.py into this folder: a part that works, as a template."""
    taken = keyword.iskeyword(name) or name in sys.stdlib_module_names or name in packages_distributions()
    if not re.fullmatch(r"(?!test_)[a-z][a-z0-9_]*", name) or taken:
        raise ScenarioError(
            f"NAME: expected small letters, digits and _, not test_... or a word or module of Python, got {name!r}."
        )
    files = [Path(ending.format(name=name)) for ending in ENDINGS]
    there = [str(file) for file in files if file.exists()]
    if there:
        raise ScenarioError(f"{', '.join(there)}: exists already and is not overwritten. Choose another name.")
    words = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_"))}
    if re.search(rf"\b{words['Class']}\b", (TEMPLATES / f"{kind}.py.txt").read_text(encoding="utf-8")):
        raise ScenarioError(f"NAME: the class would be {words['Class']}, a name that {files[0]} uses. Choose another.")
    for file, ending in zip(files, ("py", "yaml", "test"), strict=True):
        text = (TEMPLATES / f"{kind}.{ending}.txt").read_text(encoding="utf-8")
        try:
            file.write_text(Template(text).substitute(words), encoding="utf-8")
        except OSError as error:
            raise ScenarioError(f"{file}: cannot be written: {error.strerror or error}.") from error
    typer.echo("\n".join(map(str, files)))
    typer.echo(f"Next: ddlsim check {files[1]} && pytest {files[2]} && ddlsim run {files[1]}", err=True)
