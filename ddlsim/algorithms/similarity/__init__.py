"""How models are compared, and how a node draws its peers from that: softmax, third-party estimates, mixtures."""
