"""Simulated time: nodes, network, devices, churn, records. The only room that imports simpy; knows no learning rule."""

from ddlsim.registry import Registry

LINKS = Registry(
    "link",
    __name__,
    {
        "uniform": ".links:Uniform",
        "4g": ".links:Mobile4G",
        "5g": ".links:Mobile5G",
        "wifi6": ".links:Wifi6",
        "fibre": ".links:Fibre",
        "datacenter": ".links:Datacenter",
        "internet": ".links:Internet",
        "table": ".links:Table",
        "mix": ".links:Mix",
    },
)
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
