"""The simulated network: links by name, flows that share them, mailboxes, and counts of bytes.

To add a kind of link: a frozen dataclass that offers `draw(num_nodes, seed) -> LinkTable` (links.py), and a line here.
"""

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
    contract=".links:Links",
)
