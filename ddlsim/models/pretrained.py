"""Weights that a network begins with: torchvision's, or those in a file of one's own."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ddlsim.errors import DataDamaged, DataMissing
from ddlsim.extras import needed
from ddlsim.file_states import state_of

if TYPE_CHECKING:
    import torch
    from torch import nn

NONE, TORCHVISION = "none", "torchvision"


def load_pretrained(net: "nn.Module", pretrained: str, weights: str, last: str) -> None:
    """Puts weights into a network, all but those of its last layer, whose classes are others.

    Args:
        net: a fresh network of torchvision.
        pretrained: torchvision, or the path of a file with a state dict (torch.save), or none: nothing is done.
        weights: torchvision's name of the network's weights, e.g. "ResNet18_Weights".
        last: name of the last layer in the network.
    Raises:
        DataMissing: if the file is not there, or torchvision's did not come by download.
        DataDamaged: if it is no state dict of this network.
    """
    if pretrained == NONE:
        return
    found = _read(pretrained, weights, state_of(pretrained))
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
