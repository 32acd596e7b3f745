"""Learning algorithms by name, with the names and notation of their papers.

To add an algorithm, write a file in the package of its kind: a frozen dataclass (fields = YAML keys) that extends
Algorithm (see base.py) and defines `start`, `round`, `serving` and, if it has a last exchange, `finish`. Add a line to
this table, and a scenario. The contract tests (tests/algorithms/test_contract*.py) then cover it.
"""

from ddlsim.foundation.registry import Registry

ALGORITHMS = Registry(
    "algorithm",
    __name__,
    {
        "facade": ".personalized.facade:Facade",
        "el": ".decentralized.el:EpidemicLearning",
        "dpsgd": ".decentralized.dpsgd:DPSGD",
        "deprl": ".personalized.deprl:DePRL",
        "dac": ".personalized.dac:DAC",
        "random": ".decentralized.baselines:RandomGossip",
        "oracle": ".decentralized.baselines:Oracle",
        "local": ".decentralized.baselines:Local",
        "pens": ".personalized.pens:PENS",
        "panm": ".personalized.panm:PANM",
        "gossip": ".decentralized.gossip:GossipLearning",
        "adpsgd": ".decentralized.adpsgd:ADPSGD",
        "mapl": ".personalized.mapl:MAPL",
        "fedavg": ".server.fedavg:FedAvg",
        "fedprox": ".server.fedprox:FedProx",
        "scaffold": ".server.scaffold:Scaffold",
        "fedsim": ".server.fedsim:FedSim",
        "fedclassavg": ".server.fedclassavg:FedClassAvg",
        "fedproto": ".server.fedproto:FedProto",
        "fedavgm": ".server.fedopt:FedAvgM",
        "fedadagrad": ".server.fedopt:FedAdagrad",
        "fedadam": ".server.fedopt:FedAdam",
        "fedyogi": ".server.fedopt:FedYogi",
        "fednova": ".server.fednova:FedNova",
        "feddyn": ".server.feddyn:FedDyn",
        "fedasync": ".server.fedasync:FedAsync",
        "fedbuff": ".server.fedbuff:FedBuff",
        "hierfavg": ".server.hierfavg:HierFAVG",
        "ditto": ".server.ditto:Ditto",
        "fedper": ".server.fedrep:FedPer",
        "fedrep": ".server.fedrep:FedRep",
        "ifca": ".server.ifca:IFCA",
        "dfedavgm": ".decentralized.dfedavgm:DFedAvgM",
        "gtsgd": ".decentralized.gtsgd:GTSGD",
        "sgp": ".decentralized.sgp:SGP",
        "d2": ".decentralized.d2:D2",
        "exact_diffusion": ".decentralized.exact_diffusion:ExactDiffusion",
        "extra": ".decentralized.extra:EXTRA",
        "qgm": ".decentralized.qgm:QGM",
        "relaysgd": ".decentralized.relaysgd:RelaySGD",
        "data_parallel": ".low_communication.data_parallel:DataParallel",
        "local_sgd": ".low_communication.local_sgd:LocalSGD",
        "diloco": ".low_communication.diloco:DiLoCo",
        "streaming_diloco": ".low_communication.streaming_diloco:StreamingDiLoCo",
        "sparta": ".low_communication.sparta:Sparta",
        "sparseloco": ".low_communication.sparseloco:SparseLoCo",
        "noloco": ".low_communication.noloco:NoLoCo",
        "async_diloco": ".low_communication.async_diloco:AsyncDiLoCo",
    },
    contract=".base:Algorithm",
)
