"""A module, or what makes modules, that Python code gives in the place of a model's name."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.identity import Identity
from ddlsim.foundation.torch_state import forked_generators
from ddlsim.models.base import ImageShape, ModelSettings
from ddlsim.models.whole import refuse_lazy

ARGUMENTS = ("image_shape", "num_classes")
"""What a class or function that makes modules may take, by name."""


@dataclass(frozen=True, kw_only=True)
class GivenModel(ModelSettings):
    """Base of the classes that stand for a module, or for a class or function that makes modules.

    Args:
        sha256: digest of its source text, of the values and own functions that this uses, and, of a module, of its
            structure and values; of what makes modules without arguments, of the structure of what it makes; null: as
            it is given.
    """

    sha256: str | None = None

    given: ClassVar[Any] = None
    """The module, or what makes it."""
    digest: ClassVar[str] = ""
    """What `sha256` has to be."""
    written_as: ClassVar[Any] = None
    """The class or function whose text a manifest shows."""
    identified: ClassVar[bool] = True
    """Whether the digest tells it from all others; otherwise a run of it that is there already never comes back."""

    def __post_init__(self) -> None:
        if self.sha256 not in (None, self.digest):
            raise ScenarioError(
                f"sha256: the run was made with another {type(self).__name__} ({self.sha256}) than the one that is "
                f"given now ({self.digest}). Give the one of then: of a module also its first values count."
            )
        object.__setattr__(self, "sha256", self.digest)

    def build(self, image_shape: ImageShape, num_classes: int) -> nn.Module:
        """A copy of the module with its values; or a fresh one from what makes them."""
        if isinstance(self.given, nn.Module):
            try:
                return copy.deepcopy(self.given)
            except Exception as error:  # whatever its attributes raise
                raise ScenarioError(
                    f"model: this {type(self.given).__name__} cannot be copied for the nodes ({type(error).__name__}: "
                    f"{' '.join(str(error).split()):.200}). Give its class, or a function that makes it."
                ) from error
        known = dict(zip(ARGUMENTS, (image_shape, num_classes), strict=True))
        wanted = inspect.signature(self.given).parameters
        return self.given(**{name: value for name, value in known.items() if name in wanted})


def given_model(given: "nn.Module | Callable[..., nn.Module]") -> GivenModel:
    """The model of a module, or of a class or function that makes modules.

    Args:
        given: a module: every node begins with its values; or a class or function: modules are made anew, with random
            values from the scenario's seed. It takes nothing, or `image_shape` and `num_classes`, or one of them, by
            these names.
    Raises:
        ScenarioError: if it takes something else, or if the module has parameters without a shape, or with hooks.
    """
    written_as = type(given) if isinstance(given, nn.Module) else given
    if not isinstance(given, nn.Module):
        needed = [
            each.name
            for each in inspect.signature(given).parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        others = [name for name in needed if name not in ARGUMENTS]
        if others:
            raise ScenarioError(
                f"model: {_name(given)} needs {', '.join(others)}; expected a class or function that takes nothing, or "
                f"{' and '.join(ARGUMENTS)}. Give a module, or a function such as lambda: {_name(given)}(...)."
            )
    identity = Identity()
    if isinstance(given, nn.Module):
        refuse_lazy(given, type(given).__name__)
        _refuse_gradient_hooks(given)
        identity.module(given, with_values=True)
    else:
        _identify(identity, given)
    attributes = {
        "given": given if isinstance(given, nn.Module) else staticmethod(given),
        "digest": identity.sha256[:16],
        "identified": identity.known,
        "written_as": staticmethod(written_as),
        "__module__": getattr(written_as, "__module__", __name__),
        "__doc__": inspect.getdoc(written_as),
    }
    cls: type[GivenModel] = type(_name(written_as), (GivenModel,), attributes)
    return dataclass(frozen=True, kw_only=True)(cls)()


def _refuse_gradient_hooks(given: nn.Module) -> None:
    """Raises ScenarioError if a parameter has hooks, which no copy of it has."""
    for name, parameter in given.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ScenarioError(
                f"model: {name} of this {type(given).__name__} has a hook on its gradient, which a copy of the module "
                "for a node does not have. Give the class, or a function that makes the module and registers the hook."
            )


def _identify(identity: Identity, given: "Callable[..., nn.Module]") -> None:
    """What tells a class or function that makes modules from others; one that takes nothing is called once."""
    try:
        identity.maker(given)
        if not set(ARGUMENTS) & set(inspect.signature(given).parameters):
            with forked_generators():
                made = given()
            if isinstance(made, nn.Module):
                identity.module(made, with_values=False)
    except Exception:  # what is wrong with it is told where models are built
        identity.known = False


def _name(given: Any) -> str:
    """A name for scenarios and folders: that of the class or function."""
    name = getattr(given, "__name__", type(given).__name__)
    return name if name.isidentifier() else "Model"
