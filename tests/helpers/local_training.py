"""The section `training` of a scenario, from the keys of a test."""

from typing import Any

from ddlsim.scenario.sections import Training
from ddlsim.scenario.tree import Mark, from_plain, with_long_names


def local_training(**keys: Any) -> Training:
    """Return plain SGD with rate 0.1 on batches of four, changed by these keys of training or optimizer."""
    whole = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 4, **keys}
    section = with_long_names(from_plain(whole, Mark("test"))).plain()
    if isinstance(section["optimizer"], str):
        section["optimizer"] = {"name": section["optimizer"]}
    return Training.model_validate(section)
