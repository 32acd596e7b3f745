"""Attacks by name (scenario section `attacks`): effects on attacked nodes' messages, training data, or network.

To add an attack, write a frozen dataclass (fields = YAML keys) that extends Attack (base.py), and add a line to this
table.
"""

from ddlsim.foundation.registry import Registry

ATTACKS = Registry(
    "attack",
    __name__,
    {
        "sign_flip": ".forgeries:SignFlip",
        "gaussian_noise": ".forgeries:GaussianNoise",
        "model_replacement": ".forgeries:ModelReplacement",
        "alie": ".forgeries:ALIE",
        "inner_product_manipulation": ".forgeries:InnerProductManipulation",
        "foe": ".forgeries:FOE",
        "dissensus": ".forgeries:Dissensus",
        "label_flip": ".forgeries:LabelFlip",
        "backdoor": ".forgeries:Backdoor",
        "free_rider": ".forgeries:FreeRider",
        "sybil": ".forgeries:Sybil",
        "flooding": ".forgeries:Flooding",
        "withholding": ".forgeries:Withholding",
    },
    contract=".base:Attack",
    aliases={"ipm": "inner_product_manipulation", "noise": "gaussian_noise", "a_little_is_enough": "alie"},
)
