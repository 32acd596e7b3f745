"""Secure aggregation as a cost: the bytes of its messages, and the users whose inputs are in a sum.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure Aggregation for
Privacy-Preserving Machine Learning", CCS 2017, figure 4 without its additions against active adversaries. An
aggregator learns only the sum of its users' vectors; n users, threshold t:

    AdvertiseKeys           a user sends two public keys; each of the users U1 that did gets the keys of the others.
    ShareKeys               a user splits its mask key and its seed into t-out-of-n shares and sends, for each other
                            user, one of each, encrypted; each of U2 gets its shares.
    MaskedInputCollection   a user sends its vector plus masks, modulo R; the users U3 that did are in the sum.
    Unmasking               each of U3 gets the list of U3 and sends a share per user of U2: of the seed of users in U3,
                            of the mask key of the others. t answers remove the masks from the sum.

With fewer than t users after any stage there is no sum. Bytes follow the paper's section on communication: a public
key has a_K bits, a share a_S, an input value is an integer below R_U, and R = n (R_U - 1) + 1 holds a sum, so a user
sends and receives 2 n a_K + (5 n - 4) a_S + m ceil(log2 R) bits for a vector of m values. With a_K = a_S = 256 and
16-bit values that is 1.73 times the vector for 2^10 users and 2^20 values, and 1.98 times for 2^14 and 2^24, as in the
abstract. Lists of users have no bytes there, and the bytes of a message's header here.

Nothing is computed on integers: sums are in float32, as without the protocol.
"""

import numpy as np

from ddlsim.network.messages.encoder import Payload, is_parameters, leaves
from ddlsim.scenario.network_sections import SecureAggregation

ADVERTISE, SHARE, COLLECT, UNMASK = range(4)
"""The stages, in order."""

ANSWERS = ("public_keys", "encrypted_shares", "masked_input", "unmasking_shares")
"""Message of a user in each stage."""

NEWS = (None, "others_public_keys", "others_encrypted_shares", "users_of_the_sum")
"""Message of the aggregator that starts each stage; users start the first one."""


def threshold(settings: SecureAggregation, users: int) -> int:
    """Return the users that must remain after every stage, t, at least 2: a sum of one input would reveal it."""
    asked = settings.threshold
    # the product is rounded: 0.29 * 100 is 28.999999999999996
    return max(2, asked if isinstance(asked, int) else int(asked * users + 1e-9) + 1)


def num_values(payload: Payload) -> int:
    """Return the values of a payload's vector, m: parameters, arrays, and one for each number."""
    return sum(
        leaf.part.size if is_parameters(leaf) else leaf.size if isinstance(leaf, np.ndarray) else 1
        for _, leaf in leaves(payload)
    )


def news_bytes(settings: SecureAggregation, stage: int, users: int) -> int:
    """Return the bytes that a user receives at the start of a stage; `users` have passed the preceding stage."""
    if stage == SHARE:
        return (users - 1) * 2 * settings.key_bytes
    if stage == COLLECT:
        return (users - 1) * (2 * settings.share_bytes + settings.encryption_bytes)
    return 0


def answer_bytes(settings: SecureAggregation, stage: int, users: int, group: int, values: int) -> int:
    """Return the bytes that a user sends in a stage.

    Args:
        settings: section `secure_aggregation`.
        stage: ADVERTISE, SHARE, COLLECT or UNMASK.
        users: number of users whose keys it has (SHARE), or whose shares it has, itself included (UNMASK).
        group: n, all users at the start of the protocol.
        values: m.
    """
    if stage == ADVERTISE:
        return 2 * settings.key_bytes
    if stage == SHARE:
        return (users - 1) * (2 * settings.share_bytes + settings.encryption_bytes)
    if stage == COLLECT:
        bits = (group * (2**settings.value_bits - 1)).bit_length()  # of one value of a sum, ceil(log2 R)
        return -(-values * bits // 8)
    return users * settings.share_bytes


class Session:
    """One sum of an aggregator in a round, and its remaining users.

    Attributes:
        inputs: payloads of users, by id.
        group: the users that the aggregator waits for; None: it does not wait yet.
        stage: current stage; None: the session is closed.
        heard: users whose answer of this stage has arrived.
        gone: users that have dropped out.
        passed: for each completed stage its users (U1, U2, U3), ascending.
    """

    __slots__ = ("gone", "group", "heard", "inputs", "passed", "stage")

    def __init__(self) -> None:
        self.inputs: dict[int, Payload] = {}
        self.group: frozenset[int] | None = None
        self.stage: int | None = ADVERTISE
        self.heard: set[int] = set()
        self.gone: set[int] = set()
        self.passed: list[tuple[int, ...]] = []

    @property
    def pending(self) -> set[int]:
        """Users whose answer of this stage may still arrive."""
        return set(self.passed[-1] if self.passed else self.group or ()) - self.heard - self.gone

    def next_stage(self) -> None:
        """Start the next stage with the users that have answered."""
        assert self.stage is not None and self.group is not None
        self.passed.append(tuple(sorted(self.heard & self.group)))
        self.stage, self.heard = self.stage + 1, set()

    def close(self) -> None:
        """Close the session and free its payloads."""
        self.stage = None
        self.inputs = {}
