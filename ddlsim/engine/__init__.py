"""Simulated time: nodes, network, devices, churn, records. The only room that imports simpy; knows no learning rule."""

from ddlsim.registry import Registry

LINKS = Registry("link", __name__, {})
DEVICES = Registry(
    "device",
    __name__,
    {
        "constant": ".devices:Constant",
        "per_node": ".devices:PerNode",
        "lognormal": ".devices:LogNormal",
    },
)
CHURNS = Registry("churn", __name__, {"schedule": ".churn:Schedule"})
