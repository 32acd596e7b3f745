"""Names in YAML and the classes they stand for, imported only when they are asked for.

Everything that a scenario can name (an algorithm, a model, a data set, a partition, a shift, a topology, ...) is a
frozen dataclass: its fields are the YAML keys beside `name`, its defaults are the defaults, its annotations
(annotated_types bounds, Literal) the allowed values, its docstring's first line what `ddlsim list` prints.
Packages outside can add names through the entry-point group `ddlsim.<kind>s`.
"""

import difflib
import importlib
from collections.abc import Iterator, Mapping
from importlib import metadata


class Registry(Mapping[str, type]):
    """Lazy table of one kind of named part.

    Args:
        kind: singular noun for messages, e.g. "algorithm".
        package: package that the entries' modules are relative to.
        entries: name -> "module:Class", module relative to `package` (a leading dot).
        aliases: other names that people type -> names; they are taken, but neither listed nor written.
    """

    def __init__(self, kind: str, package: str, entries: dict[str, str], aliases: Mapping[str, str] | None = None):
        self.kind = kind
        self.aliases = dict(aliases or {})
        self._package = package
        self._entries = dict(entries)
        self._plugins: dict[str, metadata.EntryPoint] | None = None

    def __getitem__(self, name: str) -> type:
        name = self.aliases.get(name, name)
        if name in self._entries:
            module, _, attribute = self._entries[name].partition(":")
            return getattr(importlib.import_module(module, self._package), attribute)
        plugins = self._find_plugins()
        if name in plugins:
            return plugins[name].load()
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._entries, *(n for n in self._find_plugins() if n not in self._entries)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def nearest(self, name: str) -> str | None:
        """The known name closest to a mistyped one, or None."""
        found = difflib.get_close_matches(str(name), list(self), n=1, cutoff=0.5)
        return found[0] if found else None

    def aliases_of(self, name: str) -> list[str]:
        """Other names that stand for this one."""
        return [alias for alias, meant in self.aliases.items() if meant == name]

    def name_of(self, part: object) -> str:
        """The name under which a part's class stands in this table."""
        return next(name for name in self if self[name] is type(part))

    def _find_plugins(self) -> dict[str, metadata.EntryPoint]:
        if self._plugins is None:
            points = metadata.entry_points(group=f"ddlsim.{self.kind}s")
            self._plugins = {point.name: point for point in points}
        return self._plugins
