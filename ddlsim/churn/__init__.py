"""Churn, the times at which nodes are offline, by name.

To add one, write a frozen dataclass that defines `absences(num_nodes, seed)` (see schedule.py), and add a line here.
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
        "fta": ".traces:FailureTrace",
    },
    contract=".schedule:Churn",
)
