"""Secure aggregation as a cost: what the messages of a protocol weigh, and whose inputs are in a sum.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, figure 4 without what is added there against active adversaries. An
aggregator learns the sum of its users' vectors and none of them; n users, threshold t:

    AdvertiseKeys           a user sends two public keys; each of the users U1 that did gets those of the others.
    ShareKeys               a user splits its mask key and its seed into t-out-of-n shares and sends, for each other
                            user, one of each, encrypted; each of U2 gets those that are meant for it.
    MaskedInputCollection   a user sends its vector plus masks, modulo R; the users U3 that did make the sum.
    Unmasking               each of U3 hears who they are and sends a share per user of U2: of the seed of those in U3,
                            of the mask key of the others. t answers take the masks off the sum.

With fewer than t users after any of them there is no sum. Bytes are those of the paper's section on communication: a
public key has a_K bits, a share a_S, an input value is an integer below R_U, and R = n (R_U - 1) + 1 holds a sum, so a
user sends and receives 2 n a_K + (5 n - 4) a_S + m ceil(log2 R) bits for a vector of m values. With a_K = a_S = 256 and
16-bit values that is 1.73 times the vector for 2^10 users and 2^20 values, and 1.98 times for 2^14 and 2^24, as the
abstract has it. Lists of users have no bytes there, and have those of a message's header here.

Nothing is computed on integers: sums are those of float32, as without the protocol.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.network.messages.encoder import is_parameters, walk

if TYPE_CHECKING:
    from ddlsim.scenario.model import SecureAggregation


ADVERTISE, SHARE, COLLECT, UNMASK = range(4)
"""The stages, in order."""

ANSWERS = ("public_keys", "encrypted_shares", "masked_input", "unmasking_shares")
"""What a user sends in each stage."""

NEWS = (None, "others_public_keys", "others_encrypted_shares", "users_of_the_sum")
"""What the aggregator sends to begin a stage; users begin the first by themselves."""


def threshold(settings: "SecureAggregation", users: int) -> int:
    """How many users must be left after every stage, t, at least 2: one input alone would be no sum."""
    asked = settings.threshold
    # the product is rounded: 0.29 * 100 is 28.999999999999996
    return max(2, asked if isinstance(asked, int) else int(asked * users + 1e-9) + 1)


def sum_bits(users: int, value_bits: int) -> int:
    """Bits of one value of a sum, ceil(log2 R)."""
    return (users * (2**value_bits - 1)).bit_length()


def num_values(payload: Mapping[str, Any]) -> int:
    """Values of a vector that holds all of a payload, m: parameters, arrays, and one for each number."""
    sizes: list[int] = []

    def count(leaf: Any, _: Any) -> Any:
        sizes.append(leaf.part.size if is_parameters(leaf) else leaf.size if isinstance(leaf, np.ndarray) else 1)
        return leaf

    walk(payload, count)
    return sum(sizes)


def news_bytes(settings: "SecureAggregation", stage: int, users: int) -> int:
    """Bytes that a user gets at the beginning of a stage, when so many users have gone through the one before."""
    if stage == SHARE:
        return (users - 1) * 2 * settings.key_bytes
    if stage == COLLECT:
        return (users - 1) * (2 * settings.share_bytes + settings.encryption_bytes)
    return 0


def answer_bytes(settings: "SecureAggregation", stage: int, users: int, group: int, values: int) -> int:
    """Bytes that a user sends in a stage.

    Args:
        settings: section `secure_aggregation`.
        stage: ADVERTISE, SHARE, COLLECT or UNMASK.
        users: those whose keys it has (SHARE), or whose shares it has, itself among them (UNMASK).
        group: n, all users that the protocol began with.
        values: m.
    """
    if stage == ADVERTISE:
        return 2 * settings.key_bytes
    if stage == SHARE:
        return (users - 1) * (2 * settings.share_bytes + settings.encryption_bytes)
    if stage == COLLECT:
        return -(-values * sum_bits(group, settings.value_bits) // 8)
    return users * settings.share_bytes


class Session:
    """One sum: an aggregator, a round, and the users that are still in it.

    Attributes:
        inputs: what users contribute, by id.
        group: the users that the aggregator waits for; None: it does not wait yet.
        stage: that is under way; None: the sum is there, or will never be.
        heard: users whose answer of this stage has come.
        gone: users that have dropped out.
        passed: per stage that is over the users that went through it (U1, U2, U3), ascending.
    """

    __slots__ = ("gone", "group", "heard", "inputs", "passed", "stage")

    def __init__(self) -> None:
        self.inputs: dict[int, Mapping[str, Any]] = {}
        self.group: frozenset[int] | None = None
        self.stage: int | None = ADVERTISE
        self.heard: set[int] = set()
        self.gone: set[int] = set()
        self.passed: list[tuple[int, ...]] = []

    @property
    def pending(self) -> set[int]:
        """Users whose answer of this stage may still come."""
        return set(self.passed[-1] if self.passed else self.group or ()) - self.heard - self.gone

    def next_stage(self) -> None:
        """Those that were heard go on."""
        assert self.stage is not None and self.group is not None
        self.passed.append(tuple(sorted(self.heard & self.group)))
        self.stage, self.heard = self.stage + 1, set()

    def close(self) -> None:
        """Nothing is left to be done."""
        self.stage = None
        self.inputs = {}
