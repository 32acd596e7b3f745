"""Topologies by name: for each round an undirected networkx graph that says which nodes may exchange messages.

To add one: a frozen dataclass (fields = YAML keys) that extends Topology (base.py), and a line in this table.
"""

from ddlsim.registry import Registry

TOPOLOGIES = Registry(
    "topology",
    __name__,
    {
        "random_regular": ".random_graphs:RandomRegular",
        "ring": ".fixed_graphs:Ring",
        "complete": ".fixed_graphs:Complete",
        "erdos_renyi": ".random_graphs:ErdosRenyi",
        "watts_strogatz": ".random_graphs:WattsStrogatz",
        "torus": ".fixed_graphs:Torus",
        "star": ".fixed_graphs:Star",
        "file": ".from_file:File",
    },
    contract=".base:Topology",
)
