"""What a node holds ready for peers that pull, and the pulls that it cannot answer yet."""

from typing import Any

from ddlsim.messages.message import Message


class PullStore:
    """Publications of one node, each for a round and a stage of it, and the requests that wait for one.

    Args:
        synchronous: whether a pull waits for a publication of its round, see Run.in_step.
    """

    def __init__(self, synchronous: bool):
        self._synchronous = synchronous
        self._published: dict[tuple[int, int], dict[str, Any]] = {}  # (round, stage), oldest first
        self._waiting: list[tuple[Message, int]] = []
        self._closed = False

    def publish(self, round_num: int, stage: int | None, payload: dict[str, Any], oldest_needed: int) -> None:
        """Makes a payload available.

        Args:
            round_num: the round.
            stage: of the round; None: this is all there is.
            payload: what travels.
            oldest_needed: stages of earlier rounds than this are forgotten.
        """
        kept = {}
        if stage is not None and self._synchronous:
            kept = {key: old for key, old in self._published.items() if key[0] >= oldest_needed}
        self._published = {**kept, (round_num, stage or 0): payload}

    def close(self) -> None:
        """Nothing more will come: what was last published answers the pulls of its round and all later ones."""
        self._closed = True

    def answer_to(self, request: Message) -> dict[str, Any] | None:
        """What to answer with: the first that is as new as the round and the stage asked for; in an asynchronous run,
        and where nothing newer can come, the newest. None: not there yet.
        """
        if not self._published:
            return None
        newest = self._published[next(reversed(self._published))]
        if not self._synchronous:
            return newest
        wanted = (request.round_num, request.payload.get("stage", 0))
        return next(
            (payload for key, payload in self._published.items() if key >= wanted), newest if self._closed else None
        )

    def wait(self, request: Message, stay: int) -> None:
        """Keeps a request until something new is published.

        Args:
            request: from a node that is there now.
            stay: its present one; in a later one the answer would be none to what it asks by then.
        """
        self._waiting.append((request, stay))

    def take_waiting(self) -> list[tuple[Message, int]]:
        """The requests that wait, each with the stay in which it was made; they are no longer kept."""
        taken, self._waiting = self._waiting, []
        return taken

    def clear(self) -> None:
        """The node has lost its state."""
        self._published = {}
