"""Dashboards against Grafana's published schema, as Grafana's own library of dashboard types has it."""

import enum
import json
import types
import typing


def problems(dashboard):
    """Where the parsed dashboard has a key that the schema of its place has not, or a value of another type; [] if none.
    Panels' options and queries are checked by the schemas of their plugins. Import needs the library on sys.path."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.cog.runtime import panelcfg_config
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    model = Dashboard.from_json(dashboard)
    kept = json.loads(json.dumps(model, cls=JSONEncoder))
    kinds = [f".panels[{number}].type: no panel {panel['type']}" for number, panel in enumerate(dashboard["panels"])
             if panelcfg_config(panel["type"]) is None]
    return kinds + list(_lost(dashboard, kept, "")) + list(_mistyped(model, ""))


def _lost(given, kept, where):
    """Reading keeps what the schema knows, so what is gone after reading and writing is unknown to it."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{where}.{key}")
            else:
                yield f"{where}.{key}: not in the schema"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, pair in enumerate(zip(given, kept)):
            yield from _lost(*pair, f"{where}[{number}]")
    elif given != kept:
        yield f"{where}: {given!r} is read as {kept!r}"


def _mistyped(model, where):
    for name, declared in typing.get_type_hints(type(model)).items():
        value = getattr(model, name)
        if not _is_a(value, declared):
            yield f"{where}.{name}: {value!r} is no {declared}"
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if hasattr(item, "to_json"):
                yield from _mistyped(item, f"{where}.{name}[{number}]" if isinstance(value, list) else f"{where}.{name}")


def _is_a(value, declared):
    """Whether a value has a type as annotations write them. Of a model's own fields _mistyped tells."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared in (object, typing.Any):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_is_a(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(_is_a(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_a(item, arguments[1]) for item in value.values())
    if isinstance(declared, enum.EnumMeta):
        return value in [member.value for member in declared]
    if declared is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, declared)
