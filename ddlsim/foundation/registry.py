"""Named parts of scenarios, and the tables of their names.

Every part that a scenario can name (algorithm, model, data set, partition, shift, topology, ...) is a frozen dataclass.
Its fields are the YAML keys besides `name`, its annotations (annotated_types bounds, Literal) give the allowed values,
and `ddlsim list` prints the first line of its docstring. A table imports a class when its name is looked up.

Other packages add names through the entry-point group `ddlsim.<plural>`. A name such as `./mine.py:Mine` or
`package.module:Mine` is a class in a file or module (own_code.py). Such classes extend the table's contract.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import metadata
from importlib.util import resolve_name
from typing import Any, ClassVar

from ddlsim.foundation import own_code, sources
from ddlsim.foundation.errors import ScenarioError

Problem = tuple[tuple[str | int, ...], str]
"""Path of a key inside the part, and its problem."""


class Part:
    """Base of the contracts of algorithms, models, data sets, partitions, shifts, topologies, links, devices, churn."""

    needs_classes: ClassVar[bool] = False
    """Whether it needs class labels; regressions are refused then."""

    why: ClassVar[Mapping[str, str]] = {}
    """Key -> reason for its default, for defaults that can change a published number (docs/defaults.md)."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Yield the problems with this number of nodes, without reading data. Default: none.

        A single problem may also be raised as ScenarioError, which may begin with the dotted path of the key.
        """
        return iter(())

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        """Yield keys that have no effect given the other keys, and the reason, in a run of `rounds` rounds.

        A scenario that sets one gets a note. Default: none.
        """
        return iter(())


@cache
def _entry_points() -> Any:
    """Return the entry points of all installed packages; read once for all tables."""
    return metadata.entry_points()


class Registry(Mapping[str, type]):
    """Lazy table of one kind of named part.

    Args:
        kind: singular noun for messages, e.g. "algorithm".
        package: package that the entries' modules are relative to.
        entries: name -> "module:Class", module relative to `package` (a leading dot).
        contract: "module:Class" of the base class of all entries; None: they have none.
        aliases: other spellings -> names; they are accepted, but neither listed nor written.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        entries: dict[str, str],
        contract: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ):
        self.kind = kind
        self.contract = contract
        self.aliases = dict(aliases or {})
        self._package = package
        self._entries = dict(entries)
        self._given: dict[str, type] = {}

    def __getitem__(self, name: str) -> type:
        if own_code.is_place(name):
            return self._checked(own_code.short(name), self._load_place(name))
        name = self.meant(name)
        if name in self._entries:
            return self._load(self._entries[name])
        if name in self._plugins:
            return self._checked(name, self._plugins[name].load())
        if name in self._given:
            return self._given[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._entries, *(n for n in self._plugins if n not in self._entries)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def group(self) -> str:
        """Entry-point group of user-defined classes: the plural of the kind."""
        return f"ddlsim.{self.kind.removesuffix('y')}ies" if self.kind.endswith("y") else f"ddlsim.{self.kind}s"

    @property
    def own_names(self) -> list[str]:
        """Names that ddlsim itself defines."""
        return list(self._entries)

    def meant(self, name: str) -> str:
        """Return the name of an alias; any other name unchanged."""
        return self.aliases.get(name, name)

    def aliases_of(self, name: str) -> list[str]:
        """Return the aliases of a name."""
        return [alias for alias, meant in self.aliases.items() if meant == name]

    def origin_of(self, name: str) -> str:
        """Describe the origin of a listed name: built-in, or the package of the entry point and its version."""
        if name in self._entries:
            return "built-in"
        package = getattr(self._plugins.get(name), "dist", None)
        return f"entry point of {package.name} {package.version}" if package else "entry point"

    def name_of(self, part: object) -> str:
        """Return the name of a part's class in a scenario: from this table, or the path of its file with the class.

        Any other class, e.g. of a notebook, is registered in this process under its class name.
        """
        return self.register_class(type(part))

    def label_of(self, part: object) -> str:
        """Return the name for messages and paths: as `name_of`, but only the class name of a class in a file."""
        name = self.name_of(part)
        return type(part).__name__ if own_code.is_place(name) else name

    def register_class(self, cls: type) -> str:
        """Return the name of a class that Python code passes instead of a name.

        Raises:
            ScenarioError: the class does not keep the contract.
        """
        found = self._known_name(cls)
        if found is not None:
            return found
        name = cls.__name__
        if name in self._entries or name in self._plugins or name in self.aliases:
            name = f"{cls.__module__}.{cls.__qualname__}"
        self._given[name] = self._checked(name, cls)
        return name

    def about(self, part: object) -> dict[str, Any] | None:
        """Return the manifest's entry on a part's class; None for classes of ddlsim."""
        name = self.name_of(part)
        if name in self._entries:
            return None
        found: dict[str, Any] = {"kind": self.kind, "name": name}
        point = self._plugins.get(name)
        if point is None:
            return {**found, **sources.about(type(part))}
        package = getattr(point, "dist", None)
        found |= {"distribution": package and package.name, "version": package and package.version}
        if not sources.is_installed(type(part).__module__):  # pip install -e: code changes under one version
            found["sha256"] = sources.digest_of(type(part))
        return found

    def _known_name(self, cls: type) -> str | None:
        place = own_code.place_of(cls) or self._names_by_definition.get((cls.__module__, cls.__qualname__))
        return place or next((name for name in self if self[name] is cls), None)

    @cached_property
    def _names_by_definition(self) -> dict[tuple[str, str], str]:
        """Map (module, class) of each entry to its first name."""
        places = {name: place.partition(":") for name, place in reversed(self._entries.items())}
        return {(resolve_name(module, self._package), cls): name for name, (module, _, cls) in places.items()}

    def _load(self, place: str) -> type:
        module, _, attribute = place.partition(":")
        return getattr(importlib.import_module(module, self._package), attribute)

    def _load_place(self, place: str) -> type:
        return own_code.load_class(place)

    def _checked(self, name: str, cls: type) -> type:
        """Return a user-defined class that keeps the contract.

        Raises:
            ScenarioError: the class does not keep it; the text names what the class lacks.
        """
        if self.contract is None:
            return cls
        base = self._load(self.contract)
        place = own_code.where(cls)
        where = f"{self.kind} {name!r}: {f'{place}: ' if place else ''}{cls.__module__}.{cls.__qualname__}"
        if own_code.place_of(cls):  # its module is made by own_code
            where = f"{place}: {cls.__qualname__}"
        contract = f"{base.__module__}.{base.__qualname__}"
        if not issubclass(cls, base):
            raise ScenarioError(f"{where} must extend {contract}, whose docstrings describe its methods.")
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise ScenarioError(f"{where} does not define {', '.join(missing)}; {contract} says what they do.")
        if not dataclasses.is_dataclass(cls):
            raise ScenarioError(f"{where} must be a dataclass (frozen, keyword-only): its fields are the YAML keys.")
        return cls

    @cached_property
    def _plugins(self) -> dict[str, metadata.EntryPoint]:
        return {point.name: point for point in _entry_points().select(group=self.group)}
