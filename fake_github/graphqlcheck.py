"""GraphQL by GitHub's schema: is a query one that GitHub takes, and an answer an answer to it?"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import graphql

from fake_github import descriptions
from fake_github.http import Request, Response

PATHS = ("/graphql", "/api/graphql")


class GraphQLCheck:
    """Checks GraphQL requests against GitHub's schema, and that the answers are answers to them."""

    def __call__(self, request: Request, response: Response) -> list[str]:
        if request.path not in PATHS:
            return []
        schema = _graphql_schema()
        try:
            sent = json.loads(request.body)
            unknown = set(sent) - {"query", "variables", "operationName"}
            document = graphql.parse(sent["query"])
        except (ValueError, KeyError, TypeError, graphql.GraphQLError) as error:
            return [f"the request is none: {error}"]
        if unknown:
            return [f"the request has unknown keys: {sorted(unknown)}"]
        errors = graphql.validate(schema, document)
        if errors:
            return [error.message for error in errors]
        if response.status != 200:
            return []
        try:
            answer = json.loads(response.body)
        except ValueError as error:
            return [f"the answer is no JSON: {error}"]
        if set(answer) - {"data", "errors", "extensions"} or not set(answer) & {"data", "errors"}:
            return [f"the answer has the keys {sorted(answer)}"]
        if "errors" in answer:
            texts = [error.get("message") for error in answer["errors"]]
            return (
                [] if texts and all(isinstance(text, str) for text in texts) else ["errors without messages"]
            )
        # The answer is replayed: each field takes what the answer says under its name, and its type judges that.
        replay = graphql.execute_sync(
            schema,
            document,
            answer["data"],
            variable_values=sent.get("variables") or {},
            operation_name=sent.get("operationName"),
            field_resolver=_replayed_field,
            type_resolver=_replayed_type,
        )
        if replay.errors:
            return [error.message for error in replay.errors]
        return [] if replay.data == answer["data"] else ["the answer has fields that were not asked for"]


@functools.cache
def _graphql_schema() -> graphql.GraphQLSchema:
    # Published with doubled and misplaced directives, which only a validation of the schema itself minds.
    return graphql.build_schema(descriptions.graphql(), assume_valid=True)


def _replayed_field(source: Mapping[str, Any], info: graphql.GraphQLResolveInfo[Any], **_: Any) -> Any:
    key = info.path.key
    if not isinstance(source, Mapping) or key not in source:
        raise ValueError(f"the answer lacks {'.'.join(map(str, info.path.as_list()))}")
    return source[str(key)]


def _replayed_type(value: Mapping[str, Any], info: graphql.GraphQLResolveInfo[Any], kind: Any) -> str | None:
    """`__typename` when it was asked for, else the first type for which the query asks just these fields, else one for
    which it asks none of its own."""
    if "__typename" in value:
        return str(value["__typename"])
    possible = [each.name for each in info.schema.get_possible_types(kind)]
    named = set()
    for node in info.field_nodes:
        for selection in node.selection_set.selections if node.selection_set else ():
            if isinstance(selection, graphql.InlineFragmentNode) and selection.type_condition:
                keys = {
                    (field.alias or field.name).value
                    for field in selection.selection_set.selections
                    if isinstance(field, graphql.FieldNode)
                }
                if selection.type_condition.name.value in possible and keys <= set(value):
                    return selection.type_condition.name.value
                named.add(selection.type_condition.name.value)
    return next((each for each in possible if each not in named), possible[0] if possible else None)
