"""Actors of Ray that serve one run after the other: a process that imports torch starts in more time than a small run
takes. Their messages and results are the same as with actors of one run.
"""

from collections import defaultdict
from contextlib import contextmanager

from ddlsim.runs.cluster import ray_workers
from ddlsim.runs.cluster.cluster import import_ray


@contextmanager
def kept_actors(monkeypatch):
    """Let runs with the executor ray keep their actors for later runs; kill them at the end."""
    idle = defaultdict(list)  # host and threads -> free actors

    class KeptActors(ray_workers.RayWorkers):
        """Replaces RayWorkers."""

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
