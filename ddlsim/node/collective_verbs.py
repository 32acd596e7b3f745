"""Collective operations of a node, and verbs that run in the background."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypedDict, Unpack

import simpy

from ddlsim.foundation.errors import DdlsimError, kind_of, listing
from ddlsim.network.collective_schedules import SCHEDULES
from ddlsim.network.messages.encoder import is_parameters, walk
from ddlsim.node.arguments import node_ids
from ddlsim.node.parameters import ParameterOps
from ddlsim.node.ports import CollectiveCall, OnLeave, Params

Verb = tuple[simpy.Event, Callable[[], Any]]
"""An operation that takes simulated time: the event of its end, and the function that then returns its result."""

Steps = Generator[Verb, Any, None]
"""A round of an algorithm: a generator of verbs."""


@dataclass(frozen=True, eq=False)
class Handle:
    """A verb in the background, see `Node.begin`.

    Args:
        verb: the verb.
        stay: number of the node's stay at its start.
    """

    verb: Verb
    stay: int

    @property
    def done(self) -> bool:
        """Whether the verb has ended."""
        return self.verb[0].processed


class Options(TypedDict, total=False):
    """Options of all collectives.

    Args:
        on_leave: `rebuild` (default): if a member leaves, the others start again without it; `continue`: they continue.
        wire_bytes: bytes of a member's content, if the algorithm encodes its values; default: 4 a value, or by
            network.compression.
    """

    on_leave: OnLeave
    wire_bytes: int


class CollectiveVerbs(ParameterOps):
    """Collective operations, and verbs in the background.

    The members of `group` call a collective with equal arguments, in any order; the network carries its flows (see
    network/collective_schedules.py for the algorithms, and engine/collectives.py for members that leave). A content is
    parameters, or a mapping, list or tuple of parameters (a model, several fragments). A group of one member ends at
    once, without bytes. Arguments of all collectives:

    Args:
        group: its members in the order of the ring, including this node.
        round_num: the round; the collective drops a member that has completed it without a call.
        algorithm: name of the schedule.
        options: see Options.
    """

    open_verbs: int
    stay = 0
    """Number of the node's current stay; the engine counts it."""

    def all_reduce(
        self,
        content: Any,
        group: Iterable[int],
        round_num: int,
        algorithm: str = "ring",
        *,
        sites: Sequence[Sequence[int]] = (),
        **options: Unpack[Options],
    ) -> Verb:
        """Average a content over the group; result: the mean over the remaining members.

        Args:
            content, group, round_num, options: see CollectiveVerbs.
            algorithm: ring, direct, tree, halving_doubling, server (at the first member), or hierarchical.
            sites: for `hierarchical`, the members of each site; the first member exchanges with other sites.
        """
        call = self._call("all_reduce", group, round_num, algorithm, options, sites=sites)
        return self._collective(call, content, options, lambda contents: self._mean(list(contents.values())))

    def reduce_scatter(
        self, content: Any, group: Iterable[int], round_num: int, algorithm: str = "ring", **options: Unpack[Options]
    ) -> Verb:
        """Average a content over the group; result: this member's part of the mean.

        The i-th of n members gets the i-th of n consecutive parts, of nearly equal size, of each of the parameters.

        Args:
            content, group, round_num, options: see CollectiveVerbs.
            algorithm: ring or direct.
        """
        call = self._call("reduce_scatter", group, round_num, algorithm, options)

        def part(contents: dict[int, Any]) -> Any:
            place, count = [member for member in call.group if member in contents].index(self.id), len(contents)

            def cut(params: "Params", _: Any) -> "Params":
                columns = (params.size * place // count, params.size * (place + 1) // count)
                return self._compute.columns(params, (columns,))

            return walk(self._mean(list(contents.values())), cut)

        return self._collective(call, content, options, part)

    def all_gather(
        self, content: Any, group: Iterable[int], round_num: int, algorithm: str = "ring", **options: Unpack[Options]
    ) -> Verb:
        """Send a content to all members; result: the contents of all members, by node, ascending.

        Args:
            content, group, round_num, options: see CollectiveVerbs.
            algorithm: ring or direct.
        """
        call = self._call("all_gather", group, round_num, algorithm, options)
        return self._collective(call, content, options, lambda contents: contents)

    def broadcast(
        self,
        content: Any,
        root: int,
        group: Iterable[int],
        round_num: int,
        algorithm: str = "tree",
        **options: Unpack[Options],
    ) -> Verb:
        """Send a content from one member to all; result: the content, or None if the root left before.

        Args:
            content, group, round_num, options: see CollectiveVerbs; other members' contents are ignored.
            root: the sender.
            algorithm: tree, ring or direct.
        """
        root = index(root)
        call = self._call("broadcast", group, round_num, algorithm, options, root=root)
        content = content if self.id == root else None
        return self._collective(call, content, options, lambda contents: contents.get(root))

    def begin(self, verb: Verb) -> Handle:
        """Run a verb in the background: `handle = node.begin(node.all_reduce(...))`.

        `wait` returns its result, also in a later round. Use it for messages, since simultaneous trainings on a device
        take no longer than one.
        """
        if not isinstance(verb, tuple) or len(verb) != 2 or not isinstance(verb[0], simpy.Event):
            text = f"expected a verb of the node, such as node.all_reduce(...), got {kind_of(verb)}"
            raise DdlsimError(f"node.begin: {text}. Do not yield the verb.")
        self.open_verbs -= 1
        return Handle(verb, self.stay)

    def wait(self, handle: Handle) -> Verb:
        """Wait for a verb that `begin` has started; result: the verb's, or None if the node has left since."""
        if not isinstance(handle, Handle):
            text = f"expected the result of node.begin, got {kind_of(handle)}"
            raise DdlsimError(f"node.wait: {text}. Write handle = node.begin(node.all_reduce(...)).")
        self.open_verbs += 1
        if handle.stay != self.stay:
            return self._clock.after(0.0), lambda: None
        return handle.verb

    def _call(
        self,
        verb: str,
        group: Iterable[int],
        round_num: int,
        algorithm: str,
        options: Options,
        root: int | None = None,
        sites: Sequence[Sequence[int]] = (),
    ) -> CollectiveCall:
        """Return checked arguments.

        Raises:
            DdlsimError: an invalid one.
        """
        members, known, wrong = node_ids(group, self._num_members, verb), SCHEDULES[verb], None
        on_leave = options.get("on_leave", "rebuild")
        if len(set(members)) < len(members) or self.id not in members:
            wrong = f"expected different nodes as group, node {self.id} among them, got {listing(members)}"
        elif algorithm not in known:
            wrong = f"expected the algorithm {', '.join(known)}, got {algorithm!r}"
        elif on_leave not in ("rebuild", "continue"):
            wrong = f"expected on_leave rebuild or continue, got {on_leave!r}"
        elif unknown := set(options) - set(Options.__annotations__):
            wrong = f"expected the options {' and '.join(Options.__annotations__)}, got {sorted(unknown)[0]}"
        elif root is not None and root not in members:
            wrong = f"expected a member of the group as root, got {root}"
        elif algorithm == "hierarchical" and sorted(member for site in sites for member in site) != sorted(members):
            wrong = f"expected sites with each member of the group once, got {[list(site) for site in sites]}"
        if wrong is not None:
            raise DdlsimError(f"node.{verb}: {wrong}.")
        of_sites = tuple(map(tuple, sites)) if algorithm == "hierarchical" else ()
        return CollectiveCall(verb, members, index(round_num), algorithm, on_leave, root, of_sites)

    def _collective(
        self, call: CollectiveCall, content: Any, options: Options, result: Callable[[dict[int, Any]], Any]
    ) -> Verb:
        if content is not None or call.root in (None, self.id):
            walk(content, self._check_parameters)
        event, contents = self._transport.collective(self.id, call, content, options.get("wire_bytes"))
        self.open_verbs += 1
        return event, lambda: result(contents())

    @staticmethod
    def _check_parameters(leaf: Any, _: Any) -> None:
        if not is_parameters(leaf):
            text = f"expected parameters, or mappings, lists and tuples of them, got {kind_of(leaf)}"
            raise DdlsimError(f"content of a collective: {text}. Send other values by node.send.")

    def _mean(self, contents: Sequence[Any]) -> Any:
        """Return the mean of contents of one structure, parameters by parameters."""
        flat: list[list[Params]] = []
        for content in contents:
            flat.append([])
            walk(content, lambda leaf, _: flat[-1].append(leaf))
        weights = [1 / len(contents)] * len(contents)
        means = iter([self._compute.merge(sources, weights, self.id) for sources in zip(*flat, strict=True)])
        return walk(contents[0], lambda _leaf, _path: next(means))
