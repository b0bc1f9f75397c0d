"""Conversion between JSON and the dataclasses of models."""
from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from . import models

T = TypeVar("T")


@functools.lru_cache(maxsize=None)
def _plan(cls: type) -> dict[str, tuple[Any, bool]]:
    """Returns type and optionality of a dataclass's fields."""
    hints = typing.get_type_hints(cls, dict(vars(models)))
    return {f.name: (hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
            for f in dataclasses.fields(cls)}


def decode(cls: type[T], value: Any) -> T:
    """Returns value as cls. It ignores unknown fields of a newer daemon, and sets missing ones to None."""
    return typing.cast(T, _convert(cls, value))


def _convert(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        return _convert(kinds[0], value) if len(kinds) == 1 else value
    if origin is list:
        return [_convert(typing.get_args(kind)[0], v) for v in value]
    if origin is dict:
        of = typing.get_args(kind)[1]
        return {k: _convert(of, v) for k, v in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        given = {}
        for name, (of, required) in _plan(kind).items():
            key = name.rstrip("_")
            if key in value or name in value:
                given[name] = _convert(of, value.get(key, value.get(name)))
            elif required:
                given[name] = None
        return kind(**given)
    return value


def encode(value: Any) -> Any:
    """Returns a dataclass as JSON, without its None fields. Other values stay as they are."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): encode(v) for f in dataclasses.fields(value)
                if (v := getattr(value, f.name)) is not None}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {k: encode(v) for k, v in value.items()}
    return value


def filters(labels: Mapping[str, str | None] | None, more: Iterable[str]) -> list[str] | None:
    """Returns the filters of a list, or None if there are none. A label with the value None has any value."""
    if isinstance(more, str):
        more = [more]
    some = ["label=" + (k if v is None else f"{k}={v}") for k, v in (labels or {}).items()]
    return [*some, *more] or None
