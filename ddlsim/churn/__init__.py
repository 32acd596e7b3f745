"""When nodes are away, by name.

To add one: a frozen dataclass that offers `absences(num_nodes, seed)` (see schedule.py), and a line here.
"""

from ddlsim.registry import Registry

CHURNS = Registry(
    "churn",
    __name__,
    {
        "schedule": ".schedule:Schedule",
        "exponential": ".sessions:Exponential",
        "weibull": ".sessions:Weibull",
        "skype": ".sessions:Skype",
        "overnet": ".sessions:Overnet",
        "microsoft": ".sessions:Microsoft",
        "planetlab": ".sessions:PlanetLab",
        "trace": ".traces:Trace",
        "fedscale": ".traces:FedScale",
        "fta": ".fta:FailureTrace",
    },
    contract=".schedule:Churn",
)
