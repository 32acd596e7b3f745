"""How a node chooses its peers: from similarities to probabilities, estimates through third parties, neighbours."""
