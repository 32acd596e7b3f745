"""Training of replicas over slow links, mostly of language models: one file per paper."""
