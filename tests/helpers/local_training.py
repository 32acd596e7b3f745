"""The section `training` of a scenario, from the keys that a test is about."""

from typing import Any

from ddlsim.scenario.model import Training
from ddlsim.scenario.problems import Mark
from ddlsim.scenario.shorthand import with_long_names
from ddlsim.scenario.tree import from_plain


def local_training(**keys: Any) -> Training:
    """Plain SGD with the rate 0.1 on batches of four, unless keys say otherwise, the optimizer's among them."""
    whole = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 4, **keys}
    return Training.model_validate(with_long_names(from_plain(whole, Mark("test"))).plain())
