"""Client of a moestro node. `Client` is the whole API; moestro.v1 has the messages."""

from moestro.client import Answer, Client

__all__ = ["Answer", "Client"]
