"""Computing speed of nodes, by name.

To add a kind of devices, write a frozen dataclass that extends Devices (see base.py), and add a line here.
"""

from ddlsim.foundation.registry import Registry

DEVICES = Registry(
    "device",
    __name__,
    {
        "estimated": ".step_times:Estimated",
        "language_model": ".language_models:LanguageModel",
        "calibrated": ".step_times:Calibrated",
        "constant": ".step_times:Constant",
        "per_node": ".step_times:PerNode",
        "lognormal": ".step_times:LogNormal",
        "table": ".step_times:Table",
        "trace": ".base:Trace",
        "fedscale": ".base:FedScale",
    },
    contract=".base:Devices",
)
