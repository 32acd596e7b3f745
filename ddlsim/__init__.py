"""ddlsim: a discrete-event simulator of decentralized deep learning."""

__version__ = "0.1.0"
