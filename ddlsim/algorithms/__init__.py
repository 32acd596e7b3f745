"""Learning algorithms by name: named and written as in their papers.

To add an algorithm, write a file with a frozen dataclass (fields = YAML keys) that extends Algorithm (see base.py) and
defines `start`, `round`, `serving` and, if it has a last exchange, `finish`. Add a line to this table, and a scenario.
The contract test (tests/algorithms/test_contract.py) then covers it.
"""

from ddlsim.foundation.registry import Registry

ALGORITHMS = Registry(
    "algorithm",
    __name__,
    {
        "facade": ".facade:Facade",
        "el": ".el:EpidemicLearning",
        "dpsgd": ".dpsgd:DPSGD",
        "deprl": ".deprl:DePRL",
        "dac": ".dac:DAC",
        "random": ".baselines:RandomGossip",
        "oracle": ".baselines:Oracle",
        "local": ".baselines:Local",
        "pens": ".pens:PENS",
        "panm": ".panm:PANM",
        "gossip": ".gossip:GossipLearning",
        "adpsgd": ".adpsgd:ADPSGD",
        "mapl": ".mapl:MAPL",
        "fedavg": ".fedavg:FedAvg",
        "fedprox": ".fedprox:FedProx",
        "scaffold": ".scaffold:Scaffold",
        "fedsim": ".fedsim:FedSim",
        "fedclassavg": ".fedclassavg:FedClassAvg",
        "fedproto": ".fedproto:FedProto",
        "dfedavgm": ".dfedavgm:DFedAvgM",
        "gtsgd": ".gtsgd:GTSGD",
        "sgp": ".sgp:SGP",
    },
    contract=".base:Algorithm",
)
