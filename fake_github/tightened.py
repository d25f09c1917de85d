"""GitHub's OpenAPI descriptions, stricter where they are lax, and excerpts of them."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fake_github import descriptions

_BODY = 65_536  # characters that GitHub takes in a comment
_REPO = "/repos/{owner}/{repo}"
_NESTED = {"path", "ref", "basehead"}  # parameters of paths that may hold a slash


@functools.cache
def description(name: str) -> dict[str, Any]:
    """GitHub's description `name`, tightened. Shared: not to be changed."""
    value = descriptions.openapi(name)
    paths = value["paths"]
    value["components"]["parameters"]["per-page"]["schema"].update(minimum=1, maximum=100)
    value["components"]["parameters"]["page"]["schema"].update(minimum=1)
    errors = ("validation-error", "validation-error-simple")
    for error in errors:  # which GitHub sends, but forgot here
        value["components"]["schemas"][error]["properties"]["status"] = {"type": "string"}
    for comment in ("pull-request-review-comment", "review-comment"):  # outdated, it has no place
        properties = value["components"]["schemas"][comment]["properties"]
        for place in ("line", "position"):
            properties[place]["nullable"] = True
    # As in the 403 of a blob above 100 MB.
    value["components"]["schemas"]["basic-error"]["properties"]["errors"] = {"type": "array"}
    # Texts or objects: any operation may give either.
    for refusal in ("validation_failed", "validation_failed_simple"):
        schema = {"anyOf": [{"$ref": f"#/components/schemas/{error}"} for error in errors]}
        value["components"]["responses"][refusal]["content"]["application/json"]["schema"] = schema

    review = _body_of(paths, "post", f"{_REPO}/pulls/{{pull_number}}/reviews")
    review["required"] = ["commit_id", "event"]
    review["additionalProperties"] = False
    review["properties"]["body"]["maxLength"] = _BODY
    draft = review["properties"]["comments"]["items"]
    single = _body_of(paths, "post", f"{_REPO}/pulls/{{pull_number}}/comments")
    for each in (draft, single):
        each["additionalProperties"] = False
        each["properties"]["body"].update(minLength=1, maxLength=_BODY)
        for line in ("line", "start_line"):
            each["properties"][line]["minimum"] = 1
        for side in ("side", "start_side"):
            each["properties"][side]["enum"] = ["LEFT", "RIGHT"]
        del each["properties"]["position"]  # closing down
    draft["required"] = ["path", "body", "line"]
    for method, path in (
        ("put", "pulls/{pull_number}/reviews/{review_id}"),
        ("post", "pulls/{pull_number}/comments/{comment_id}/replies"),
        ("post", "issues/{issue_number}/comments"),
        ("patch", "issues/comments/{comment_id}"),
        ("patch", "pulls/comments/{comment_id}"),
    ):
        _body_of(paths, method, f"{_REPO}/{path}")["properties"]["body"].update(minLength=1, maxLength=_BODY)
    for method, path in (("post", "check-runs"), ("patch", "check-runs/{check_run_id}")):
        output = _body_of(paths, method, f"{_REPO}/{path}")["properties"]["output"]
        properties = output["properties"]["annotations"]["items"]["properties"]
        properties["title"]["maxLength"] = 255
        for line in ("start_line", "end_line"):
            properties[line]["minimum"] = 1
    return value


def _body_of(paths: Mapping[str, Any], method: str, path: str) -> dict[str, Any]:
    schema: dict[str, Any] = paths[path][method]["requestBody"]["content"]["application/json"]["schema"]
    return schema


@functools.cache
def routes(name: str) -> list[tuple[str, re.Pattern[str]]]:
    """The templates of paths with what they match, those with the longest fixed text first."""
    paths = sorted(description(name)["paths"], key=lambda path: -len(re.sub(r"\{[^}]*\}", "", path)))
    return [(path, re.compile(re.sub(r"\\\{([^}]*)\\\}", _group, re.escape(path)))) for path in paths]


def _group(match: re.Match[str]) -> str:
    name = match[1].replace("\\", "")
    return f"(?P<{name.replace('-', '__')}>{'.+' if name in _NESTED else '[^/]+'})"


def excerpt(name: str, templates: Iterable[str]) -> dict[str, Any]:
    """The description `name` with only `templates` and GraphQL, for a tool that reads all that it is given.

    Paths are those of an enterprise server. Parameters that may hold slashes are spelled out, for up to six segments.
    """
    whole = description(name)
    paths: dict[str, Any] = {"/api/graphql": _GRAPHQL}
    for template in templates:
        paths |= _spelled_out(f"/api/v3{template}", whole["paths"][template])
    kept: dict[str, Any] = {}
    waiting: list[Any] = [paths]
    while waiting:
        for pointer in _references(waiting.pop()):
            _, _, kind, key = pointer.split("/")
            if key not in kept.setdefault(kind, {}):
                kept[kind][key] = whole["components"][kind][key]
                waiting.append(kept[kind][key])
    found: dict[str, Any] = copy.deepcopy(
        {
            "openapi": whole["openapi"],
            "info": {"title": name, "version": "1"},
            "paths": paths,
            "components": kept,
        }
    )
    answers = [found["components"]["responses"]]
    answers += [operation["responses"] for item in found["paths"].values() for operation in item.values()]
    for each in answers:
        for response in each.values():
            response.setdefault("description", "")  # without one, a response without a body is none to Prism
    return found


_GRAPHQL = {
    "post": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {"query": {"type": "string"}, "variables": {"type": "object"}},
                        "required": ["query"],
                        "additionalProperties": False,
                    }
                }
            },
        },
        "responses": {
            "200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    }
}


def _spelled_out(template: str, item: dict[str, Any]) -> dict[str, Any]:
    found = re.search(r"/\{(" + "|".join(_NESTED) + r")\}$", template)
    if found is None:
        return {template: item}
    items = {template: item}
    for depth in range(2, 7):
        more = [f"{found[1]}{index}" for index in range(2, depth + 1)]
        parameters = [
            {"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in more
        ]
        items[template + "".join(f"/{{{each}}}" for each in more)] = {
            method: {**operation, "parameters": [*operation["parameters"], *parameters]}
            for method, operation in item.items()
        }
    return items


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
