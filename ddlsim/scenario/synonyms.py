"""Words of other frameworks and papers, with the names of ddlsim that are close in meaning, for error messages."""

from collections.abc import Iterable

from ddlsim.foundation.errors import did_you_mean

NAMES: dict[str, dict[str, str]] = {
    "algorithm": {
        "ddp": "data_parallel",
        "epidemic_learning": "el",
        "fedsgd": "fedavg",
        "gossip_learning": "gossip",
        "gradient_tracking": "gtsgd",
        "push_sum": "sgp",
        "standalone": "local",
    },
    "topology": {"all_to_all": "complete", "line": "networkx", "mesh": "complete"},
    "churn": {"dropout": "exponential", "markov": "exponential", "on_off": "exponential", "random": "exponential"},
    "partition": {"lda": "dirichlet", "non_iid": "dirichlet", "pathological": "shards"},
    "link": {"3g": "4g", "broadband": "fiber", "lan": "datacenter", "lte": "4g", "wan": "internet-latency"},
    "compression": {"fp16": "float16", "quantization": "int8", "sparsification": "top_k"},
    "device": {"heterogeneous": "lognormal", "measured": "calibrated"},
    "model": {"bert": "hugging_face", "cnn": "gn_lenet", "logistic": "linear", "rnn": "lstm", "transformer": "gpt"},
    "schedule": {"warmup": "constant"},
}
"""Kind of named part -> word -> name."""

KEYS = {
    "bandwidth": ("network.links",),
    "bs": ("training.batch_size",),
    "clients": ("nodes.clusters",),
    "clients_per_round": ("algorithm.clients_per_round",),
    "dropout": ("participation", "churn"),
    "epochs_per_round": ("training.epochs",),
    "eta": ("training.learning_rate",),
    "fraction_fit": ("algorithm.clients_per_round",),
    "graph": ("topology",),
    "latency": ("network.links",),
    "local_epochs": ("training.epochs",),
    "lr": ("training.learning_rate",),
    "n_nodes": ("nodes.clusters",),
    "num_clients": ("nodes.clusters",),
    "num_nodes": ("nodes.clusters",),
    "num_rounds": ("rounds",),
    "packet_loss": ("network.drop_probability",),
    "steps": ("training.local_steps",),
}
"""Word -> keys of a scenario, by dotted path."""


def suggestion(wrong: object, known: Iterable[str], kind: str | None = None) -> str:
    """Return a sentence with the name or keys that a word means or resembles, after a space; or nothing.

    Args:
        wrong: the unknown word.
        known: valid names or keys at its place.
        kind: kind of a named part; None: the word is a key.
    """
    known, word = list(known), str(wrong).lower().replace("-", "_")
    if kind is not None:
        meant = tuple(name for name in [NAMES.get(kind, {}).get(word)] if name in known)
    else:
        meant = KEYS.get(word, ())
    return f" Did you mean {' or '.join(map(repr, meant))}?" if meant else did_you_mean(wrong, known)
