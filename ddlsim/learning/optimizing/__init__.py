"""How local training changes a model: optimizers, learning-rate schedules, and what is done to gradients before a step.

Nothing here imports torch before a name is asked for that needs it.
"""

from ddlsim.foundation.registry import Registry
from ddlsim.learning.optimizing.table import OptimizerTable

OPTIMIZERS = OptimizerTable(
    "optimizer", __name__, {"sgd": ".table:SGD", "adam": ".table:Adam", "adamw": ".table:AdamW"}
)

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
        "multistep": "multi_step",
        "onecycle": "one_cycle",
    },
)
