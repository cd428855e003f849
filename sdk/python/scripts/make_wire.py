"""Makes src/outlast/wire.py, TypedDicts of the API's objects, from docs/reference/openapi.json.

Usage: make_wire.py [--check]. With --check nothing is written, and the exit code is 1 where the file differs.
"""

import json
import keyword
import pathlib
import sys
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
SOURCE = PACKAGE.parents[1] / "docs" / "reference" / "openapi.json"
TARGET = PACKAGE / "src" / "outlast" / "wire.py"
HEADER = '''# @generated from docs/reference/openapi.json by scripts/make_wire.py; do not change it here.
# ruff: noqa: E501
"""The objects of the API as the server sends and takes them, with the wire's names."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def annotation(schema: dict[str, Any]) -> str:
    """The Python annotation of a schema; `Any` where it says nothing."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            members = list(dict.fromkeys(annotation(member) for member in schema[word]))
            return members[0] if len(members) == 1 else f"Union[{', '.join(members)}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return f"Union[{', '.join(annotation({**schema, 'type': one}) for one in kind)}]"
    if kind == "array":
        return f"list[{annotation(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {annotation(values)}]" if isinstance(values, dict) else "dict[str, Any]"
    return SIMPLE.get(kind, "Any")


def fields(schema: dict[str, Any], schemas: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The properties of an object and the names of the required ones, over all parts of an `allOf`."""
    properties: dict[str, Any] = {}
    required: set[str] = set()
    for part in schema.get("allOf", [schema]):
        found = schemas[part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else part
        is_whole = "allOf" not in found
        inner, names = (found.get("properties", {}), set(found.get("required", []))) if is_whole else fields(found, schemas)
        properties.update(inner)
        required |= names
    return properties, required


def declaration(name: str, schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """The TypedDict or the alias of a schema."""
    properties, required = fields(schema, schemas)
    if not properties:
        return f"{name} = {annotation(schema)}\n"
    parts = {True: {}, False: {}}
    for field, inner in properties.items():
        parts[field in required][field] = annotation(inner)
    if any(keyword.iskeyword(field) or not field.isidentifier() for field in properties):
        body = ", ".join(f"{field!r}: {kind}" for part in parts.values() for field, kind in part.items())
        return f'{name} = TypedDict("{name}", {{{body}}}, total=False)\n'
    base = "TypedDict"
    text = ""
    if parts[True] and parts[False]:
        text = _class(f"_{name}Required", "TypedDict", parts[True]) + "\n\n"
        base = f"_{name}Required"
        return text + _class(name, f"{base}, total=False", parts[False], schema.get("description"))
    total = "" if parts[True] else ", total=False"
    return _class(name, base + total, parts[True] or parts[False], schema.get("description"))


def _class(name: str, bases: str, members: dict[str, str], description: str | None = None) -> str:
    lines = [f"class {name}({bases}):"]
    if description:
        lines += [f'    """{description.rstrip(".")}."""', ""]
    lines += [f"    {field}: {kind}" for field, kind in members.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    schemas = json.loads(SOURCE.read_text())["components"]["schemas"]
    declared = [declaration(name, schema, schemas) for name, schema in schemas.items()]
    # Aliases are evaluated when the module is read, so they come after the classes; classes name each other freely.
    classes = [text for text in declared if text.startswith("class ")]
    aliases = [text for text in declared if not text.startswith("class ")]
    simple = [text for text in aliases if "Union[" not in text and "list[" not in text]
    others = [text for text in aliases if text not in simple]
    names = ", ".join(f'"{name}"' for name in sorted(schemas))
    text = HEADER + "\n".join(simple) + "\n\n" + "\n\n".join(classes) + "\n\n" + "\n".join(others) + f"\n\n__all__ = [{names}]\n"
    if "--check" in sys.argv:
        if TARGET.read_text() != text:
            print("src/outlast/wire.py differs from docs/reference/openapi.json; run scripts/make_wire.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
