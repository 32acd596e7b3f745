"""Weights that a network begins with: torchvision's, or those in a file of one's own."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import DataDamaged, DataMissing
from ddlsim.extras import needed
from ddlsim.file_states import state_of

if TYPE_CHECKING:
    import torch
    from torch import nn

NONE, TORCHVISION = "none", "torchvision"
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
"""Keys under which training scripts save a state dict."""


def load_pretrained(net: "nn.Module", pretrained: str, weights: str, last: str) -> None:
    """Puts weights into a network, all but those of its last layer, whose classes are others.

    Args:
        net: a fresh network of torchvision.
        pretrained: torchvision, or the path of a file with a state dict (torch.save), also as training scripts wrap it
            (state_dict, model, module.), or none: nothing is done.
        weights: torchvision's name of the network's weights, e.g. "ResNet18_Weights".
        last: name of the last layer in the network.
    Raises:
        DataMissing: if the file is not there, or torchvision's did not come by download.
        DataDamaged: if it is no state dict of this network.
    """
    if pretrained == NONE:
        return
    wanted = [name for name in net.state_dict() if not name.startswith(last + ".")]
    found = _unwrapped(_read(pretrained, weights, state_of(pretrained)), wanted, last)
    kept = {name: values for name, values in found.items() if not name.startswith(last + ".")}
    try:
        lacking = net.load_state_dict(kept, strict=False)
    except RuntimeError as error:
        what = str(error).splitlines()[-1].strip()
        raise DataDamaged(f"model.pretrained: {pretrained} does not fit: {what}") from error
    missing = [name for name in lacking.missing_keys if not name.startswith(last + ".")]
    if missing or lacking.unexpected_keys:
        wrong = ", ".join([*(f"no {name}" for name in missing[:3]), *lacking.unexpected_keys[:3]])
        raise DataDamaged(f"model.pretrained: {pretrained} holds the weights of another network ({wrong}).")


def _unwrapped(found: Mapping[str, Any], wanted: Sequence[str], last: str) -> "Mapping[str, torch.Tensor]":
    """The weights in a checkpoint: below a wrapper's key, without a prefix of all names (module.), if all names then
    fit; else the checkpoint as it is.
    """
    for own in (found, *(found[key] for key in WRAPPERS if isinstance(found.get(key), Mapping))):
        ends = [name.removesuffix(wanted[0]) for name in map(str, own) if name.endswith(wanted[0])]
        for prefix in dict.fromkeys(("", *ends)):
            names = {str(name).removeprefix(prefix): value for name, value in own.items()}
            fits = {name for name in names if not name.startswith(last + ".")} == set(wanted)
            if fits and all(str(name).startswith(prefix) for name in own):
                return names
    return found


@lru_cache(maxsize=2)
def _read(pretrained: str, weights: str, state: tuple[int, int, int] | None) -> "dict[str, torch.Tensor]":
    """A state dict; kept, since every node's model begins with it, until the file is in another `state`."""
    import torch

    if pretrained == TORCHVISION:
        models = needed("torchvision.models", "vision", "model.pretrained: torchvision")
        chosen = models.get_weight(f"{weights}.DEFAULT")
        try:
            return chosen.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:  # URLError and timeouts are OSErrors, a wrong hash is a RuntimeError
            raise DataMissing(
                f"model.pretrained: torchvision's weights did not come by download: {error}. Get {chosen.url} "
                "elsewhere and give the file's path as model.pretrained, or set it to none."
            ) from error
    path = Path(pretrained).expanduser()
    if not path.is_file():
        raise DataMissing(
            f"model.pretrained: there is no file {path}. Expected none, torchvision, or the path of a state dict."
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that torch cannot read fails in any way it likes
        raise DataDamaged(f"model.pretrained: {path} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise DataDamaged(f"model.pretrained: {path} holds {type(found).__name__}, expected a state dict.")
    return found
