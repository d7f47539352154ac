"""JSON Schemas for the document, made from the models that say what goes over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

_REF = "#/components/schemas/{model}"

Schema = dict[str, Any]
Model = tuple[type[BaseModel], JsonSchemaMode]


class AnswerModel(BaseModel):
    """The base of models that only describe what the encoders write; nothing is made of them."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def requested(*models: type[BaseModel]) -> tuple[Model, ...]:
    """Mark models as what callers send: a field with a default may be left out."""
    return tuple((model, "validation") for model in models)


def answered(*models: type[BaseModel]) -> tuple[Model, ...]:
    """Mark models as what callers get: every field is there."""
    return tuple((model, "serialization") for model in models)


def ref(model: type[BaseModel]) -> Schema:
    """Return the reference to a model's schema among the components."""
    return {"$ref": _REF.format(model=model.__name__)}


def component_schemas(models: Iterable[Model]) -> dict[str, Schema]:
    """Return the schemas of the models and of all that they hold, by name."""
    _, root = models_json_schema(list(models), ref_template=_REF, schema_generator=_Generator)
    schemas: dict[str, Schema] = root["$defs"]
    for union in _unions(schemas):
        _tell_apart(union, schemas)
    return schemas


class _Generator(GenerateJsonSchema):
    """Leaves out titles, which only repeat the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _unions(node: Any) -> Iterator[Schema]:
    """Yield every union whose members nothing tells apart yet."""
    if isinstance(node, dict):
        if "oneOf" in node and "discriminator" not in node:
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _unions(child)


def _tell_apart(union: Schema, schemas: dict[str, Schema]) -> None:
    """Name `type` as what tells the members apart, where each has a fixed one of its own.

    Elsewhere a value may fit several members, which `oneOf` would refuse.
    """
    mapping = {}
    for member in union["oneOf"]:
        # A member without a name is no object.
        schema = schemas.get(member.get("$ref", "").rpartition("/")[2], {})
        kind = schema.get("properties", {}).get("type", {})
        if "const" in kind and "type" in schema.get("required", ()):
            mapping[kind["const"]] = member["$ref"]
    if len(mapping) == len(union["oneOf"]):
        union["discriminator"] = {"propertyName": "type", "mapping": mapping}
    else:
        union["anyOf"] = union.pop("oneOf")
