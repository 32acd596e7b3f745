"""What received models become: Metropolis-Hastings, FedAvg and FedSim weights, as pure functions of node ids."""
