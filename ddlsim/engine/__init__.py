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
        "internet-latency": ".links:Internet",
        "table": ".links:Table",
        "mix": ".links:Mix",
        "routed": ".routed_links:Routed",
    },
)
DEVICES = Registry(
    "device",
    __name__,
    {
        "constant": ".devices:Constant",
        "per_node": ".devices:PerNode",
        "lognormal": ".devices:LogNormal",
        "table": ".devices:Table",
        "trace": ".device_trace:Trace",
    },
)
CHURNS = Registry(
    "churn",
    __name__,
    {
        "schedule": ".churn:Schedule",
        "exponential": ".churn_sessions:Exponential",
        "weibull": ".churn_sessions:Weibull",
        "skype": ".churn_sessions:Skype",
        "overnet": ".churn_sessions:Overnet",
        "microsoft": ".churn_sessions:Microsoft",
        "planetlab": ".churn_sessions:PlanetLab",
        "trace": ".churn_traces:Trace",
        "fedscale": ".churn_traces:FedScale",
    },
)
