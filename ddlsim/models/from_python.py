"""A module, or a class or function that makes modules, from Python code instead of a model's name."""

import copy
import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from ddlsim.foundation import sources
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.torch_state import forked_generators
from ddlsim.models.base import BUILD_ARGUMENTS, ImageShape, ModelSettings
from ddlsim.models.whole import refuse_lazy

MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes of a module that hold the functions hooked on it."""


@dataclass(frozen=True, kw_only=True)
class PythonModel(ModelSettings):
    """Base of the settings of a module, or of a class or function that makes modules.

    Args:
        sha256: digest of its source text and, of a module, of its structure and values; of a class or function without
            arguments, of the structure of the module that it makes; null accepts the current one.
    """

    sha256: str | None = None

    source: ClassVar[Any] = None
    """The module, or the class or function that makes it."""
    digest: ClassVar[str] = ""
    """Value that `sha256` must have."""
    written_as: ClassVar[Any] = None
    """The class or function whose text a manifest shows."""
    code: ClassVar[str | None] = None
    """SHA-256 of its source files, see `sources.digest_of`; None: unknown, so that its runs are not reusable."""

    def __post_init__(self) -> None:
        if self.sha256 not in (None, self.digest):
            text = f"expected the {type(self).__name__} of the run, {self.sha256}, got {self.digest}"
            raise ScenarioError(f"sha256: {text}. Pass the same one; of a module also its initial values count.")
        object.__setattr__(self, "sha256", self.digest)

    def build(self, image_shape: ImageShape, num_classes: int) -> nn.Module:
        """A copy of the module with its values; or a fresh one from what makes them."""
        if isinstance(self.source, nn.Module):
            try:
                return copy.deepcopy(self.source)
            except Exception as error:  # any error of its attributes
                text = f"this {type(self.source).__name__} cannot be copied ({type(error).__name__}: {error!s:.200})"
                raise ScenarioError(f"model: {text}. Give its class, or a function that makes it.") from error
        known = dict(zip(BUILD_ARGUMENTS, (image_shape, num_classes), strict=True))
        wanted = inspect.signature(self.source).parameters
        return self.source(**{name: value for name, value in known.items() if name in wanted})


def model_from_python(source: "nn.Module | Callable[..., nn.Module]") -> PythonModel:
    """Return the model of a module, or of a class or function that makes modules.

    Args:
        source: a module, with whose values every node starts; or a class or function, called to make fresh modules with
            random values from the scenario's seed. It takes nothing, or `image_shape` and `num_classes`, or one of
            them, by these names.
    Raises:
        ScenarioError: if it takes other arguments, or if the module has parameters without a shape, or with hooks.
    """
    written_as = type(source) if isinstance(source, nn.Module) else source
    if not isinstance(source, nn.Module):
        arguments = inspect.signature(source)
        try:
            arguments.bind(**{name: None for name in BUILD_ARGUMENTS if name in arguments.parameters})
        except TypeError as error:
            text = f"{_name(source)} may take {' and '.join(BUILD_ARGUMENTS)} alone: {error}"
            raise ScenarioError(f"model: {text}. Give a module, or lambda: {_name(source)}(...).") from error
    text, code = sources.source_of(written_as) or "", sources.digest_of(written_as)
    if isinstance(source, nn.Module):
        refuse_lazy(source, type(source).__name__)
        _refuse_gradient_hooks(source)
        text, code = text + _structure(source, with_values=True), _code_of(source)
    elif not set(BUILD_ARGUMENTS) & set(inspect.signature(source).parameters):
        with suppress(Exception), forked_generators():  # its error is reported where models are built
            text += _structure(source(), with_values=False)
    attributes = {
        "source": source if isinstance(source, nn.Module) else staticmethod(source),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "code": code,
        "written_as": staticmethod(written_as),
        "__module__": getattr(written_as, "__module__", __name__),
        "__doc__": inspect.getdoc(written_as),
    }
    cls: type[PythonModel] = type(_name(written_as), (PythonModel,), attributes)
    return dataclass(frozen=True, kw_only=True)(cls)()


def _refuse_gradient_hooks(source: nn.Module) -> None:
    """Raise ScenarioError if a parameter has hooks, which no copy of it has."""
    for name, parameter in source.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            text = f"{name} of this {type(source).__name__} has a hook on its gradient, which copies for nodes lack"
            raise ScenarioError(f"model: {text}. Give the class, or a function that makes the module with its hook.")


def _structure(module: nn.Module, with_values: bool) -> str:
    """Text of a module's layers, plain attributes and the names, types and shapes (or also values) of its tensors."""
    lines = [repr(module)]
    for name, each in module.named_modules():
        for key, value in _attributes(each).items():
            lines.append(f"{name}.{key}={value!r}" if _is_plain(value) else getattr(value, "__qualname__", ""))
    for name, values in (*module.named_parameters(), *module.named_buffers()):
        lines.append(f"{name} {values.dtype} {tuple(values.shape)} {values.requires_grad}")
        if with_values:
            flat = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            lines.append(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
    return "\n".join(lines)


def _code_of(module: nn.Module) -> str | None:
    """SHA-256 of the source files of a module's class and of its submodules' classes.

    None: one of them has none, or the module has hooks or attributes that neither these files nor `_structure` cover.
    """
    digests = {sources.digest_of(type(module))}
    for each in module.modules():
        cls = type(each)
        if not sources.is_installed(cls.__module__):
            digests.add(sources.digest_of(cls))
        others = (value for value in _attributes(each).values() if not _is_plain(value))
        holders = (value if hasattr(value, "__qualname__") else cls for value in others)
        if any(getattr(each, hooks) for hooks in MODULE_HOOKS) or not all(
            sources.is_installed(str(holder.__module__)) for holder in holders
        ):
            return None
    known = sorted(digest for digest in digests if digest is not None)
    return hashlib.sha256(" ".join(known).encode()).hexdigest() if len(known) == len(digests) else None


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Attributes of a module that nn.Module itself does not have."""
    usual = vars(nn.Module())
    return {key: value for key, value in vars(module).items() if key not in usual}


def _is_plain(value: Any) -> bool:
    """Whether `repr` shows all of a value."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _name(source: Any) -> str:
    """Return a name for scenarios and folders: the name of the class or function."""
    name = getattr(source, "__name__", type(source).__name__)
    return name if name.isidentifier() else "Model"
