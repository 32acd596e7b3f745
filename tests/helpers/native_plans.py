"""Native plans of models with random values."""

import torch
from local_training import local_training
from torch import nn

from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.native_plan import NativePlan
from ddlsim.learning.backends.workspace import ModelWorkspace

SGD = local_training(learning_rate=1.0)


def workspace_of(build) -> ModelWorkspace:
    """Return a workspace with random values; those of a normalization differ from 1 and 0."""
    workspace = ModelWorkspace(read_architecture("net", build), torch.device("cpu"))
    module = build()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.GroupNorm):
                layer.weight.normal_()
                layer.bias.normal_()
    workspace.flat.copy_(workspace.layout.flatten(module, "model"))
    return workspace


def plan_of(workspace: ModelWorkspace, shape) -> NativePlan:
    return NativePlan(workspace.module, workspace.layout, workspace.flat, shape)
