"""Topologies by name: for each round a networkx graph, undirected or directed, of nodes that exchange messages.

To add a topology, write a frozen dataclass (fields = YAML keys) that extends Topology (base.py), and add a line to this
table.
"""

from ddlsim.foundation.registry import Registry

TOPOLOGIES = Registry(
    "topology",
    __name__,
    {
        "random_regular": ".random_graphs:RandomRegular",
        "ring": ".named_graphs:Ring",
        "complete": ".named_graphs:Complete",
        "erdos_renyi": ".random_graphs:ErdosRenyi",
        "watts_strogatz": ".random_graphs:WattsStrogatz",
        "barabasi_albert": ".random_graphs:BarabasiAlbert",
        "torus": ".named_graphs:Torus",
        "star": ".named_graphs:Star",
        "tree": ".named_graphs:Tree",
        "exponential": ".finite_time_graphs:Exponential",
        "one_peer_exponential": ".finite_time_graphs:OnePeerExponential",
        "base_k": ".finite_time_graphs:BaseK",
        "hypercube": ".finite_time_graphs:Hypercube",
        "random_matching": ".finite_time_graphs:RandomMatching",
        "file": ".files:File",
        "edges": ".files:Edges",
        "networkx": ".named_graphs:FromNetworkx",
    },
    contract=".base:Topology",
    aliases={
        "full": "complete",
        "fully_connected": "complete",
        "clique": "complete",
        "er": "erdos_renyi",
        "gnp": "erdos_renyi",
        "nx": "networkx",
        "grid": "torus",
        "ws": "watts_strogatz",
        "ba": "barabasi_albert",
        "scale_free": "barabasi_albert",
        "small_world": "watts_strogatz",
        "regular": "random_regular",
        "cycle": "ring",
        "matching": "random_matching",
        "base": "base_k",
    },
)
