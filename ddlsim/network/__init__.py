"""The simulated network: links by name, flows that share them, mailboxes, and counts of bytes.

To add a kind of link, write a frozen dataclass that extends Links (see access_links.py), and add a line here.
"""

from ddlsim.foundation.registry import Registry

LINKS = Registry(
    "link",
    __name__,
    {
        "uniform": ".access_links:Uniform",
        "4g": ".access_links:Mobile4G",
        "5g": ".access_links:Mobile5G",
        "wifi6": ".access_links:Wifi6",
        "fiber": ".access_links:Fiber",
        "datacenter": ".access_links:Datacenter",
        "internet-latency": ".access_links:Internet",
        "table": ".access_links:Table",
        "mix": ".access_links:Mix",
        "routed": ".routed_links:Routed",
        "fedscale": ".trace_links:FedScale",
        "mahimahi": ".trace_links:Mahimahi",
        "latency_matrix": ".trace_links:LatencyMatrix",
    },
    contract=".access_links:Links",
)
