"""Training settings of each node: one number for all nodes, a list, a distribution, or a column of a CSV file.

Every node draws from its own stream, so an additional node changes no other node's value.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import core_schema

from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.foundation.input_files import Column, rows_by_node
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import MAX_COUNT, MAX_STEPS
from ddlsim.scenario.parts import refused

Positive = Annotated[float, Gt(0), Le(1e30)]


class Values(BaseModel, ABC):
    """Base of the distributions."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    name: str

    @abstractmethod
    def draw(self, key: str, num_nodes: int, seed: int, whole: bool) -> Sequence[float]:
        """Draw one value per node; integers if `whole`."""


class Uniform(Values):
    """Equal probability for every value from low to high, bounds included."""

    name: Literal["uniform"]
    low: Positive
    high: Positive

    def draw(self, key: str, num_nodes: int, seed: int, whole: bool) -> Sequence[float]:
        if self.low > self.high:
            raise ScenarioError(f"expected low of at most high ({self.high:g}), got {self.low:g}")
        streams = _streams(key, num_nodes, seed)
        if whole:
            low, high = math.ceil(self.low), math.floor(self.high)
            return [int(rng.integers(low, max(low, high), endpoint=True)) for rng in streams]
        return [float(rng.uniform(self.low, self.high)) for rng in streams]


class LogNormal(Values):
    """A normal distribution of the logarithm, with standard deviation `sigma`, around the median."""

    name: Literal["lognormal"]
    median: Positive
    sigma: Annotated[float, Ge(0), Le(100)] = 0.5

    def draw(self, key: str, num_nodes: int, seed: int, whole: bool) -> Sequence[float]:
        found = [self.median * math.exp(self.sigma * rng.normal()) for rng in _streams(key, num_nodes, seed)]
        return [max(1, round(value)) for value in found] if whole else found


class Choice(Values):
    """Equal probability for each of the values."""

    name: Literal["choice"]
    values: Annotated[list[Positive], MinLen(1)]

    def draw(self, key: str, num_nodes: int, seed: int, whole: bool) -> Sequence[float]:
        found = [self.values[int(rng.integers(len(self.values)))] for rng in _streams(key, num_nodes, seed)]
        return [int(value) if value.is_integer() else value for value in found] if whole else found


class Table(Values):
    """The column of the setting's name in a CSV file with a column `node`; other columns are ignored."""

    name: Literal["table"]
    path: str

    def draw(self, key: str, num_nodes: int, seed: int, whole: bool) -> Sequence[float]:
        rows = rows_by_node(self.path, {key: Column(whole)}, num_nodes, others=True)
        return [rows[node][key] for node in range(num_nodes)]


DISTRIBUTIONS: dict[str, type[Values]] = {"uniform": Uniform, "lognormal": LogNormal, "choice": Choice, "table": Table}


def _streams(key: str, num_nodes: int, seed: int) -> list[np.random.Generator]:
    return [stream(seed, f"training.{key}", node) for node in range(num_nodes)]


class PerNode:
    """Marks a pydantic field whose value may differ between nodes.

    Args:
        most: largest value.
        whole: whether values are integers of 1 or more; false: numbers above 0.
    """

    def __init__(self, most: float, whole: bool):
        kind: Any = Annotated[int, Ge(1), Le(most)] if whole else Annotated[float, Gt(0), Le(most)]
        self.whole = whole
        self._one = TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))
        self._many = TypeAdapter(tuple[kind, ...], config=ConfigDict(strict=True, allow_inf_nan=False))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.make)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = {"enum": list(DISTRIBUTIONS)}
        keys: dict[str, Any] = {key: {} for cls in DISTRIBUTIONS.values() for key in cls.model_fields}
        part = {"type": "object", "properties": {**keys, "name": names}, "additionalProperties": False}
        return {"anyOf": [self._one.json_schema(), self._many.json_schema(), part]}

    def make(self, value: Any) -> Any:
        """Return the number, tuple or distribution of plain YAML data.

        Raises:
            ValidationError: with every error, located by key.
        """
        if not isinstance(value, dict):
            adapter = self._many if isinstance(value, list) else self._one
            return adapter.validate_json(json.dumps(value))
        name = value.get("name")
        if name not in DISTRIBUTIONS:
            meant = did_you_mean(name, DISTRIBUTIONS)
            raise refused(f"unknown name {name!r}.{meant} Known: {', '.join(DISTRIBUTIONS)}")
        cls = DISTRIBUTIONS[name]
        if unknown := [key for key in value if key not in cls.model_fields]:
            raise refused(f"unknown key {unknown[0]!r}. Allowed here: {', '.join(cls.model_fields)}")
        return cls.model_validate_json(json.dumps(value))

    def drawn(self, value: Any, key: str, num_nodes: int, seed: int) -> Any:
        """Return one number for all nodes, or a tuple with one value per node.

        Raises:
            ScenarioError: the length of a list differs from the number of nodes, or a drawn value is invalid.
        """
        if not isinstance(value, tuple | Values):
            return value
        found = value if isinstance(value, tuple) else tuple(value.draw(key, num_nodes, seed, self.whole))
        if len(found) != num_nodes:
            raise ScenarioError(f"expected {num_nodes} values, one per node, got {len(found)}")
        try:
            return self._many.validate_python(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            text = first["msg"].replace("Input should be", "expected")
            raise ScenarioError(f"{text}, got {first['input']} for node {first['loc'][0]}") from error


LEARNING_RATE = PerNode(1e30, whole=False)
BATCH_SIZE = PerNode(MAX_COUNT, whole=True)
LOCAL_STEPS = PerNode(MAX_STEPS, whole=True)
EPOCHS = PerNode(MAX_STEPS, whole=False)
PER_NODE = {"learning_rate": LEARNING_RATE, "batch_size": BATCH_SIZE, "local_steps": LOCAL_STEPS, "epochs": EPOCHS}
"""Key of the section `training` -> its kind of values."""


def of_node(value: Any, node: int) -> Any:
    """Return a node's value of a drawn setting."""
    return value[node] if isinstance(value, tuple) else value
