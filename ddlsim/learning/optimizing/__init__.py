"""Optimizers, learning-rate schedules, and the treatment of gradients before a step.

Importing it does not import torch until a name that needs torch is used.
"""

from ddlsim.foundation.registry import Registry
from ddlsim.learning.optimizing.table import OptimizerTable

_COMMON = {"sgd": ".table:SGD", "adam": ".table:Adam", "adamw": ".table:AdamW", "muon": ".table:Muon"}
OPTIMIZERS = OptimizerTable("optimizer", __name__, _COMMON)

SCHEDULES = Registry(
    "schedule",
    __name__,
    {
        "constant": ".schedules:Constant",
        "step": ".schedules:Step",
        "multi_step": ".schedules:MultiStep",
        "exponential": ".schedules:Exponential",
        "linear": ".schedules:Linear",
        "polynomial": ".schedules:Polynomial",
        "cosine": ".schedules:Cosine",
        "cosine_restarts": ".schedules:CosineRestarts",
        "one_cycle": ".schedules:OneCycle",
    },
    contract=".schedules:Schedule",
    aliases={
        "StepLR": "step",
        "MultiStepLR": "multi_step",
        "ExponentialLR": "exponential",
        "LinearLR": "linear",
        "PolynomialLR": "polynomial",
        "CosineAnnealingLR": "cosine",
        "CosineAnnealingWarmRestarts": "cosine_restarts",
        "OneCycleLR": "one_cycle",
    },
)
