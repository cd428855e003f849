"""Reads and writes JSON by annotation: pydantic models, dataclasses and TypedDicts.

Models are recognised by their methods; no validation library is imported.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict


class SchemaMismatch(ValueError):
    """The value does not fit the annotation; the message names the field."""


def dumps(value: Any) -> bytes:
    """JSON in UTF-8. Models and dataclasses may be anywhere in the value."""
    return _encoder.encode(value).encode()


def loads(data: bytes | str) -> Any:
    return json.loads(data)


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Only one level: `json` calls back for the fields, which may be models.
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON; pass dicts, lists, texts, numbers, models or dataclasses")


# Made once: `json.dumps` makes one for each call with options.
_encoder = json.JSONEncoder(default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(annotation: Any, value: Any) -> Any:
    """The value as the annotation describes it; unchanged without one."""
    if annotation is None or annotation is Any:
        return value
    validate = getattr(annotation, "model_validate", None) or getattr(annotation, "validate_python", None)
    if callable(validate):
        try:
            return validate(value)
        except ValueError as error:
            raise SchemaMismatch(str(error)) from error
    return _check(annotation, value, "payload")


def _check(annotation: Any, value: Any, path: str) -> Any:
    if annotation is Any or isinstance(annotation, (str, typing.TypeVar)):
        return value
    origin = get_origin(annotation)
    if getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
        return _check(get_args(annotation)[0], value, path)
    if origin in (Union, types.UnionType):
        return _check_union(annotation, value, path)
    if origin is typing.Literal:
        if value not in get_args(annotation):
            raise SchemaMismatch(f"{path} must be one of {list(get_args(annotation))}, not {value!r}")
        return value
    if origin in (list, tuple, dict):
        return _check_container(origin, get_args(annotation), value, path)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _build_dataclass(annotation, value, path)
    if is_typeddict(annotation):
        return _check_typeddict(annotation, value, path)
    if isinstance(annotation, type) and callable(getattr(annotation, "model_validate", None)):
        return decode(annotation, value)
    if annotation in (None, type(None)):
        annotation = type(None)
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if annotation in (str, int, float, bool, list, dict, type(None)) and not _is_a(annotation, value):
        raise SchemaMismatch(f"{path} must be {annotation.__name__}, not {type(value).__name__}")
    return value


def _is_a(annotation: type, value: Any) -> bool:
    """Python's `True` is an int; JSON's is not."""
    return isinstance(value, annotation) and not (annotation is int and isinstance(value, bool))


def _check_union(annotation: Any, value: Any, path: str) -> Any:
    failures = []
    for member in get_args(annotation):
        try:
            return _check(member, value, path)
        except SchemaMismatch as failure:
            failures.append(str(failure))
    raise SchemaMismatch("; or ".join(failures))


def _check_container(origin: type, arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    if origin is dict:
        if not isinstance(value, dict):
            raise SchemaMismatch(f"{path} must be an object, not {type(value).__name__}")
        return {name: _check(arguments[1], item, f"{path}.{name}") for name, item in value.items()}
    if not isinstance(value, list):
        raise SchemaMismatch(f"{path} must be a list, not {type(value).__name__}")
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        if len(value) != len(arguments):
            raise SchemaMismatch(f"{path} must have {len(arguments)} entries, not {len(value)}")
        return tuple(_check(kind, item, f"{path}[{n}]") for n, (kind, item) in enumerate(zip(arguments, value)))
    items = [_check(arguments[0], item, f"{path}[{n}]") for n, item in enumerate(value)]
    return tuple(items) if origin is tuple else items


def _build_dataclass(annotation: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise SchemaMismatch(f"{path} must be an object, not {type(value).__name__}")
    hints = get_type_hints(annotation)
    fields = {field.name: field for field in dataclasses.fields(annotation) if field.init}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise SchemaMismatch(f"{path}.{unknown[0]} is not a field of {annotation.__name__}")
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _check(hints[name], value[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaMismatch(f"{path}.{name} is missing")
    try:
        return annotation(**found)
    except (TypeError, ValueError) as error:
        raise SchemaMismatch(f"{path}: {error}") from error


def _check_typeddict(annotation: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise SchemaMismatch(f"{path} must be an object, not {type(value).__name__}")
    hints = get_type_hints(annotation)
    for name in sorted(annotation.__required_keys__ - set(value)):
        raise SchemaMismatch(f"{path}.{name} is missing")
    return {name: _check(hints[name], item, f"{path}.{name}") if name in hints else item for name, item in value.items()}
