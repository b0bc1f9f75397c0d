"""Prints the public surface of the synchronous client as JSON, for the comparison with the TypeScript client.

    {"Sandbox": {"exec": {"kind": "method", "options": ["command", "stdin", ...], "open": false}, ...}, ...}

``open`` is set for methods with ``**more``. The members ``dispose`` and ``iterate`` stand for ``with`` and ``for``.
Types of the API (forkd.models) are left out: both clients generate them.
"""
from __future__ import annotations

import ast
import inspect
import json
import textwrap
import typing
from collections.abc import Callable
from typing import Any

import forkd
from forkd import errors, models

Member = dict[str, Any]


def public(name: str) -> bool:
    """Reports whether users may use a name."""
    return not name.startswith("_")


def method(fn: Callable[..., Any]) -> Member:
    """Describes a method by the names of its parameters, in the order of the source."""
    parameters = list(inspect.signature(fn).parameters.values())[1:]  # without self
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return {"kind": "method", "options": named, "open": len(named) != len(parameters)}


def attributes(cls: type) -> list[str]:
    """Returns the attributes that the constructor sets."""
    if "__init__" not in vars(cls) or hasattr(cls, "__dataclass_fields__"):
        return []
    tree = ast.parse(textwrap.dedent(inspect.getsource(vars(cls)["__init__"])))
    return [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name) and n.value.id == "self"]


def members(cls: type) -> dict[str, Member]:
    """Returns the public members of a class, without those of its public bases."""
    out: dict[str, Member] = {}
    for name, value in vars(cls).items():
        if public(name):
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            out[name] = method(value) if inspect.isfunction(value) else {"kind": "property"}
    for name in [*attributes(cls), *vars(cls).get("__annotations__", {})]:
        if public(name):
            out[name] = {"kind": "property"}
    if "__exit__" in vars(cls):
        out["dispose"] = {"kind": "method"}
    if "__iter__" in vars(cls):
        out["iterate"] = {"kind": "method"}
    if "__init__" in vars(cls):
        out["constructor"] = method(vars(cls)["__init__"])
    above = {n for base in cls.__mro__[1:] if base.__module__.startswith("forkd") for n in members(base)}
    return {n: m for n, m in out.items() if n not in above or n == "constructor"}


def reachable(cls: type) -> list[type]:
    """Returns the classes that properties of a class return."""
    getters = [v.fget for v in vars(cls).values() if isinstance(v, property) and v.fget]
    got = [typing.get_type_hints(getter).get("return") for getter in getters]
    return [c for c in got if inspect.isclass(c) and c.__module__.startswith("forkd._sync")]


def surface() -> dict[str, dict[str, Member]]:
    """Returns the members of the public classes by name. Functions of the package are members of ``forkd``."""
    package: dict[str, Member] = {}
    classes: dict[str, type] = {}
    for name in {*forkd.__all__, *errors.__all__}:
        value = getattr(forkd, name)
        if inspect.isclass(value):
            if not name.startswith("Async") and value.__module__ != models.__name__:
                classes[name] = value
        elif public(name):
            package[name] = {"kind": "function" if callable(value) else "property"}
    waiting = list(classes.values())
    while waiting:
        for cls in reachable(waiting.pop()):
            if cls.__name__ not in classes:
                classes[cls.__name__] = cls
                waiting.append(cls)
    return {"forkd": package, **{name: members(cls) for name, cls in sorted(classes.items())}}


if __name__ == "__main__":
    print(json.dumps(surface(), indent=1))
