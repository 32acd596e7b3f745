"""Actors of Ray that serve one run after the other: a process that imports torch starts in more time than a small run
takes. What they are sent, and what they compute, is as with actors of a run's own.
"""

from collections import defaultdict
from contextlib import contextmanager

from ddlsim.runs.cluster import ray_workers
from ddlsim.runs.cluster.cluster import import_ray


@contextmanager
def kept_actors(monkeypatch):
    """Runs with the executor ray keep their actors for later ones; at the end these are killed."""
    idle = defaultdict(list)  # host and threads -> actors there that no run has

    class KeptActors(ray_workers.RayWorkers):
        """Takes the place of RayWorkers."""

        def _actor(self, place, gpus):
            found = idle[place.host, place.threads]
            return found.pop() if found else super()._actor(place, gpus)

        def close(self):
            actors, self._actors = self._actors, []
            self._ray.get([actor.do.remote("close") for actor in actors])
            for actor, place in zip(actors, self.places, strict=True):
                idle[place.host, place.threads].append(actor)

    with monkeypatch.context() as patched:
        patched.setattr(ray_workers, "RayWorkers", KeptActors)
        yield
    for actor in (actor for found in idle.values() for actor in found):
        import_ray().kill(actor)
