"""What the sessions share. The environment says where the node is, and what it serves."""

import os
import typing

URL = os.environ["MOESTRO_URL"]  # http://127.0.0.1:8080
OPENAI_URL = URL + "/v1"
MODEL = os.environ["MOESTRO_MODEL"]
# What the template of a real model turns into calls is not in the demo model: sessions force the first call.
SORT = "Sort [5, 2, 9]."
SORTED = "[2, 5, 9]"
LONG = "1 + 2 + " * 4_000  # more than the node's context
Side = typing.Literal["left", "right"]
MOVE = {"type": "object", "properties": {"to": {"enum": ["left", "right"]}}, "required": ["to"],
        "additionalProperties": False}


def is_side(arguments):
    """Whether the arguments of a call of `move` are what its schema asks for."""
    return set(arguments) == {"to"} and arguments["to"] in ("left", "right")


def fails(error, call):
    """The error that the call raises. It must be one of this class."""
    try:
        value = call()
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__}, but {value!r}")
