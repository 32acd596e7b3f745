"""When nodes are away, by name.

To add one: a frozen dataclass that offers `absences(num_nodes, seed)` (see schedule.py), and a line here.
"""

from ddlsim.foundation.registry import Registry

CHURNS = Registry(
    "churn",
    __name__,
    {
        "schedule": ".schedule:Schedule",
        "exponential": ".schedule:Exponential",
        "weibull": ".schedule:Weibull",
        "skype": ".schedule:Skype",
        "overnet": ".schedule:Overnet",
        "microsoft": ".schedule:Microsoft",
        "planetlab": ".schedule:PlanetLab",
        "trace": ".traces:Trace",
        "fedscale": ".traces:FedScale",
        "fta": ".fta:FailureTrace",
    },
    contract=".schedule:Churn",
)
