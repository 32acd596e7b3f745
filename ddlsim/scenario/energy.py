"""The scenario's section `energy`."""

from typing import Annotated, Any

from annotated_types import Ge, Lt
from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from ddlsim.energy.joules import Costs
from ddlsim.energy.presets import KINDS
from ddlsim.scenario.problems import did_you_mean
from ddlsim.scenario.section import Section

Joules = Annotated[float, Ge(0), Lt(1e15)]
Watts = Annotated[float, Ge(0), Lt(1e12)]


class Energy(Section):
    """What a run costs in electricity; null: it is not counted. Joules and CO2 per node and to the target are recorded.

    Args:
        device: preset of watts, see `ddlsim list energy`; null: none.
        link: preset of j_per_byte_up and j_per_byte_down; null: none.
        grid: preset of gco2_per_kwh; null: none.
        j_per_step: joules of one local step on every node; a forward pass costs a third. Not beside watts.
        watts: power of a node's device while it computes, W.
        idle_w: power of a node that is online, has rounds to go and does not compute, W. Away, it costs nothing.
        j_per_byte_up: joules per byte that a node's uplink carries, wasted ones included.
        j_per_byte_down: the same of its downlink.
        server_w: power of the server from the start to its last round, W, where the algorithm has one; its bytes cost
            what a node's do.
        gco2_per_kwh: grams of CO2 equivalents per kWh of the grid; null: emissions are not told.
    """

    device: str | None = None
    link: str | None = None
    grid: str | None = None
    j_per_step: Joules | None = None
    watts: Watts | None = None
    idle_w: Watts = 0.0
    j_per_byte_up: Joules | None = None
    j_per_byte_down: Joules | None = None
    server_w: Watts = 0.0
    gco2_per_kwh: Annotated[float, Ge(0), Lt(1e6)] | None = None

    @field_validator("device", "link", "grid")
    @classmethod
    def _is_known(cls, name: str | None, info: Any) -> str | None:
        known = KINDS[info.field_name]
        if name is not None and name not in known:
            text = f"unknown preset {name!r}.{did_you_mean(name, list(known))} Known: {', '.join(known)}"
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return name

    @model_validator(mode="after")
    def _adds_up(self) -> "Energy":
        text = None
        if self.j_per_step is not None and (self.watts is not None or self.device is not None):
            other = "watts" if self.watts is not None else "device"
            text = f"computing costs j_per_step or {other}; leave one out"
        elif not any((self.costs.j_per_step, self.costs.watts, self.idle_w, self.server_w)) and not (
            self.costs.j_per_byte_up or self.costs.j_per_byte_down
        ):
            text = (
                "nothing costs anything. Give a device or watts, a link or j_per_byte_up, idle_w, ..., or leave it out"
            )
        if text:
            raise PydanticCustomError("refused", "{text}", {"text": text})
        return self

    @property
    def costs(self) -> Costs:
        """Every cost, those of presets where no key gives it."""
        found: dict[str, float] = {}
        for kind, known in KINDS.items():
            name = getattr(self, kind)
            found |= known[name].values if name is not None else {}
        given = {key: getattr(self, key) for key in Costs.__dataclass_fields__ if getattr(self, key) is not None}
        return Costs(**found | given)
