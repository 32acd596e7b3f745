"""Whether a native plan computes what a module does, tried on values that show it.

The values are neither those of a loaded model nor drawn ones: they may be all zeros, or not finite, in a model that has
diverged, and then every two computations agree, or none do.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from ddlsim.learning.backends.forward_done import done_by, has_hooks
from ddlsim.learning.backends.native_plan import NativePlan, NoPlan, layers, network_of
from ddlsim.learning.dropout import OwnDropout, seed_dropouts
from ddlsim.learning.layout import Layout
from ddlsim.learning.whole_models import CORE, HEAD, MODEL


@torch.no_grad()
def checked_plan(
    module: nn.Module, layout: Layout, flat: torch.Tensor, dropouts: list[OwnDropout], image_shape: tuple[int, ...]
) -> NativePlan | str:
    """A plan that has been seen to give what the module gives, or why there is none.

    Args:
        module: its tensors are views of `flat` [P].
        layout: how they lie there.
        flat: afterwards it holds other values, as the module's other buffers do.
        dropouts: of the module.
        image_shape: (C, H, W).
    """
    if flat.device.type != "cpu":
        return f"it lives on {flat.device.type}"
    if len(image_shape) != 3:
        return "its inputs are no images"
    if has_hooks(module):
        return "it has hooks"  # which may also make a layer's weight of other parameters
    try:
        plan = NativePlan(network_of(module, layout), flat, image_shape)
    except NoPlan as reason:
        return str(reason)
    flat.copy_(telling_values(layout))
    return plan if _computes_the_same(plan, module, dropouts, image_shape) else "its forward does more than its layers"


def _computes_the_same(
    plan: NativePlan, module: nn.Module, dropouts: list[OwnDropout], image_shape: Sequence[int]
) -> bool:
    """Whether a plan predicts what a module predicts, and the module trains what its layers give."""
    images = torch.linspace(-2, 2, 3 * math.prod(image_shape)).sin().reshape(3, *image_shape)
    for mode in (True, False):
        module.train(mode)
        if any(each.training != mode for each in module.modules()):
            return False
        if done_by(module, images) != done_by(lambda x: _layer_by_layer(module, x), images):
            return False
    if not _close(module(images), plan.outputs(plan.features(images))):
        return False
    module.train()
    seed_dropouts(dropouts, 0)
    trained = module(images)
    seed_dropouts(dropouts, 0)
    return _close(trained, module.get_submodule("head")(module.get_submodule("core")(images)))


def _layer_by_layer(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    for part in (CORE, HEAD):
        for _, layer in layers(module.get_submodule(part), part):
            x = type(layer).forward(layer, x)
    return x


def _close(expected: object, found: torch.Tensor) -> bool:
    if not isinstance(expected, torch.Tensor) or expected.shape != found.shape or not expected.isfinite().all():
        return False
    return torch.allclose(found, expected, atol=1e-3 * (1 + expected.abs().max().item()), rtol=1e-3)


def telling_values(layout: Layout) -> torch.Tensor:
    """Finite values [P] for a model, none of them zero: no layer hides what another one does, nor grows out of bounds.

    Weights have the spread of torch's initialization times two; vectors (biases, scales, running statistics) lie
    between 0.2 and 0.8, since a variance has to be positive.
    """
    found = torch.empty(layout.size)
    for entry in layout.parts[MODEL].entries:
        waves = torch.arange(entry.start + 1, entry.stop + 1, dtype=torch.float32).mul(1.7).sin()
        inputs = math.prod(entry.shape[1:])
        entry.view(found).copy_((waves * 2 / math.sqrt(inputs) if inputs > 1 else 0.5 + 0.3 * waves).view(entry.shape))
    return found
