"""Losses that come in bursts: the two states of Gilbert and Elliott, per sender, over simulated time.

Gilbert, "Capacity of a burst-noise channel" (Bell System Technical Journal, 1960); Elliott, "Estimates of error rates
for codes on burst-noise channels" (same journal, 1963). There a step is a bit; here messages are far apart and of all
sizes, so that the states last exponentially distributed times, and a message meets that which its sender's link is in
when it is sent.
"""

from collections.abc import Iterator

from ddlsim import rng


class Bursts:
    """The state of every sender's link.

    Args:
        mean_good_s, mean_bad_s: mean length of a stay in each state, simulated seconds.
        good, bad: chance that a message is lost in each state.
        seed: of the states.
    """

    def __init__(self, mean_good_s: float, mean_bad_s: float, good: float, bad: float, seed: int):
        self._means_s = mean_good_s, mean_bad_s
        self._chances = good, bad
        self._seed = seed
        self._stays: dict[int, Iterator[tuple[float, int]]] = {}
        self._now: dict[int, tuple[float, int]] = {}  # sender -> (end of its state, state: 1 is bad)

    def chance(self, sender: int, now_s: float) -> float:
        """Chance that a message is lost that is sent now; times never go back."""
        if sender not in self._stays:
            self._stays[sender] = self._drawn(sender)
            self._now[sender] = next(self._stays[sender])
        while self._now[sender][0] <= now_s:
            self._now[sender] = next(self._stays[sender])
        return self._chances[self._now[sender][1]]

    def _drawn(self, sender: int) -> Iterator[tuple[float, int]]:
        """Ends of stays and their states; the first state is that of the long run."""
        generator = rng.stream(self._seed, "loss bursts", sender)
        good_s, bad_s = self._means_s
        state, end_s = int(generator.random() < bad_s / (good_s + bad_s)), 0.0
        while True:
            end_s += generator.exponential(self._means_s[state])
            yield end_s, state
            state = 1 - state
