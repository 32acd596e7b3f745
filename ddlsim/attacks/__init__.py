"""Attacks by name (scenario section `attacks`): what attacked nodes send, train on, or do to the network.

To add one: a frozen dataclass (fields = YAML keys) that extends Attack (base.py), and a line in this table.
"""

from ddlsim.registry import Registry

ATTACKS = Registry(
    "attack",
    __name__,
    {
        "sign_flip": ".own_rows:SignFlip",
        "gaussian_noise": ".own_rows:GaussianNoise",
        "model_replacement": ".own_rows:ModelReplacement",
        "alie": ".others_rows:ALIE",
        "inner_product_manipulation": ".others_rows:InnerProductManipulation",
        "foe": ".others_rows:FOE",
        "dissensus": ".others_rows:Dissensus",
        "label_flip": ".samples:LabelFlip",
        "backdoor": ".samples:Backdoor",
        "free_rider": ".no_work:FreeRider",
        "sybil": ".no_work:Sybil",
        "flooding": ".traffic:Flooding",
        "withholding": ".traffic:Withholding",
    },
    contract=".base:Attack",
    aliases={"ipm": "inner_product_manipulation", "noise": "gaussian_noise", "a_little_is_enough": "alie"},
)
