"""Is a request one that GitHub takes, and an answer one that GitHub gives? By GitHub's own descriptions.

A check is called with a request and its answer and returns what is wrong with them, one sentence each. Bodies may not
have keys that GitHub does not name, in either direction; the descriptions themselves are tightened before (tightened.py).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from referencing import Registry
from referencing.jsonschema import DRAFT4

from fake_github.graphqlcheck import PATHS as GRAPHQL
from fake_github.graphqlcheck import GraphQLCheck
from fake_github.http import Request, Response
from fake_github.schemas import jsonschema
from fake_github.tightened import description, routes

_GITHUB = "urn:github"
_GIT = re.compile(r"/[^/]+/[^/]+\.git/")  # git's own protocol, which is no part of the API
_BY_ID = re.compile(r"/repositories/[0-9]+")  # where GitHub redirects to when a repository was renamed
_OTHER_FORMS = re.compile(
    r"application/vnd\.github\.(raw|diff|patch|sha|html)\b|application/octet-stream|text/plain"
)


def check(request: Request, response: Response) -> list[str]:
    """By the descriptions of api.github.com, REST and GraphQL."""
    return _rest()(request, response) + GraphQLCheck()(request, response)


@functools.cache
def _rest() -> OpenAPICheck:
    return OpenAPICheck()


class OpenAPICheck:
    """Checks REST requests and their answers. `name` is `api.github.com` or `ghes-3.17`."""

    def __init__(self, name: str = "api.github.com") -> None:
        self._description = description(name)
        resource = DRAFT4.create_resource(self._description)
        self._registry: Registry[Any] = Registry().with_resource(_GITHUB, resource)
        self._routes = routes(name)

    def __call__(self, request: Request, response: Response) -> list[str]:
        if request.page or request.path in GRAPHQL or _GIT.match(request.path):
            return []
        found = self.operation(request.method, _BY_ID.sub("/repos/owner/name", request.path, count=1))
        if found is None:
            return ["GitHub has no such operation"]
        template, values = found
        pointer = _pointer("paths", template, request.method.lower())
        return [
            *self._parameters(template, pointer, values, request.query),
            *self._request_body(pointer, request),
            *self._answer(pointer, request, response),
        ]

    def delivery(self, event: str, payload: Mapping[str, Any]) -> list[str]:
        """What is wrong with the payload of a webhook."""
        name = "-".join(("webhook", event, *([payload["action"]] if "action" in payload else ()))).replace(
            "_", "-"
        )
        if name not in self._description["components"]["schemas"]:
            return [f"GitHub has no {name}"]
        return list(self._strictly(_pointer("components", "schemas", name), payload, name))

    def operation(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """The template of the operation that `path` names, and its parameters."""
        for template, pattern in self._routes:
            if method.lower() in self._description["paths"][template] and (match := pattern.fullmatch(path)):
                return template, match.groupdict()
        return None

    def _parameters(
        self, template: str, pointer: str, values: Mapping[str, str], query: Mapping[str, str]
    ) -> Iterator[str]:
        places = [f"{pointer}/parameters", _pointer("paths", template, "parameters")]
        declared = {}
        for place in places:
            for index in range(len(self._at(place) or ())):
                where, parameter = self._resolved(f"{place}/{index}")
                declared[parameter["in"], parameter["name"]] = (where, parameter)
        given = [("path", name.replace("__", "-"), value) for name, value in values.items()]
        given += [("query", name, value) for name, value in query.items()]
        for kind, name, text in given:
            if (kind, name) not in declared:
                yield f"no {kind} parameter {name}"
                continue
            where, parameter = declared[kind, name]
            value = _typed(text, parameter["schema"])
            yield from self._against(f"{where}/schema", value, f"{kind} parameter {name}")
        sent = {(kind, name) for kind, name, _ in given}
        for key, (_, parameter) in declared.items():
            if parameter.get("required") and key not in sent:
                yield f"the {key[0]} parameter {key[1]} is missing"

    def _request_body(self, pointer: str, request: Request) -> Iterator[str]:
        where, described = self._resolved(f"{pointer}/requestBody")
        if not request.body:
            if described and described.get("required"):
                yield "the body is missing"
            return
        if request.method in ("GET", "DELETE") or described is None:
            if request.body not in (b"{}", b"null"):
                yield "a body that the operation does not take"
            return
        media = _media(request.headers)
        if not media.endswith("json"):
            yield f"a body of type {media!r}"
            return
        try:
            value = json.loads(request.body)
        except ValueError as error:
            yield f"a body that is no JSON: {error}"
            return
        yield from self._strictly(f"{where}/content/application~1json/schema", value, "request")

    def _answer(self, pointer: str, request: Request, response: Response) -> Iterator[str]:
        status, body = response.status, response.body
        where, described = self._resolved(f"{pointer}/responses/{status}")
        if described is None and status < 300:
            yield f"answered {status}, which is not described"
            return
        if status >= 500 or status == 304 or status in (301, 302, 307, 308):
            return
        content = (described or {}).get("content")
        if described is not None and content is None:
            if body:
                yield f"answered {status} with a body"
            return
        media = _media(response.headers)
        if _OTHER_FORMS.match(media):
            if status >= 300 or not _OTHER_FORMS.search(request.headers.get("accept", "")):
                yield f"answered {status} with {media}, which was not asked for"
            return
        if not media.endswith("json"):
            yield f"answered {status} with a body of type {media!r}"
            return
        try:
            value = json.loads(body)
        except ValueError as error:
            yield f"answered {status} with a body that is no JSON: {error}"
            return
        if content is None:  # GitHub does not list all its errors
            kind = "validation_failed" if status == 422 else "bad_request"
            schema = _pointer("components", "responses", kind, "content", "application/json", "schema")
        else:
            form = media if media in content else "application/json"
            schema = f"{where}/content/{_escaped(form)}/schema"
        yield from self._strictly(schema, value, f"answer {status}")

    def _strictly(self, pointer: str, value: Any, what: str) -> Iterator[str]:
        yield from self._against(pointer, value, what)
        yield from (f"{what}: unknown {path}" for path in self._unknown([self._at(pointer)], value, "$"))

    def _against(self, pointer: str, value: Any, what: str) -> Iterator[str]:
        validator = _Validator(
            {"$ref": f"{_GITHUB}#{pointer}"}, registry=self._registry, format_checker=_FORMATS
        )
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        if error is not None:
            text = (
                error.message
                if len(error.message) < 400
                else f"{error.message[:200]} … {error.message[-200:]}"
            )
            yield f"{what}: {error.json_path}: {text}"

    def _unknown(self, schemas: Sequence[Any], value: Any, path: str) -> Iterator[str]:
        """Where `value` has keys that none of `schemas`, which describe it together, names."""
        parts = [part for schema in schemas for part in self._parts(schema, False)]
        if isinstance(value, dict):
            named: dict[str, list[Any]] = {}
            free = False
            for part, alternative in parts:
                others = part.get("additionalProperties")
                free |= isinstance(others, dict) or (others is True and not alternative)
                for key, schema in part.get("properties", {}).items():
                    named.setdefault(key, []).append(schema)
            for key, each in value.items():
                if key in named:
                    yield from self._unknown(named[key], each, f"{path}.{key}")
                elif named and not free:
                    yield f"{path}.{key}"
        elif isinstance(value, list):
            items = [part["items"] for part, _ in parts if "items" in part]
            for index, each in enumerate(value):
                yield from self._unknown(items, each, f"{path}[{index}]")

    def _parts(self, schema: Any, alternative: bool) -> Iterator[tuple[dict[str, Any], bool]]:
        """`schema` and what it is combined of. True: beside a schema that names properties itself."""
        while "$ref" in schema:
            schema = self._at(schema["$ref"][1:])
        yield schema, alternative
        for word in ("allOf", "anyOf", "oneOf"):
            for each in schema.get(word, ()):
                yield from self._parts(each, alternative or "properties" in schema)

    def _resolved(self, pointer: str) -> tuple[str, Any]:
        node = self._at(pointer)
        while isinstance(node, dict) and "$ref" in node:
            pointer = node["$ref"][1:]
            node = self._at(pointer)
        return pointer, node

    def _at(self, pointer: str) -> Any:
        node: Any = self._description
        for key in pointer.split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            node = node[int(key)] if isinstance(node, list) else node.get(key)
            if node is None:
                return None
        return node


def _pointer(*keys: str) -> str:
    return "".join(f"/{_escaped(key)}" for key in keys)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _media(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").split(";")[0].strip().lower()


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """What the text of a parameter stands for; the text itself when it is not of the schema's type."""
    kind = schema.get("type")
    if kind == "integer" and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind == "array":
        return text.split(",")
    return text


def _nullable(keyword: str) -> Callable[..., Any]:
    plain = jsonschema.Draft4Validator.VALIDATORS[keyword]

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        return (
            () if instance is None and schema.get("nullable") else plain(validator, value, instance, schema)
        )

    return check


# OpenAPI 3.0 is JSON Schema of draft 4 with `nullable`.
_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator,
    {keyword: _nullable(keyword) for keyword in ("type", "enum", "allOf", "anyOf", "oneOf")},
)
_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return (
        not isinstance(value, str) or datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    )


@_FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(re.match(r"[a-z]+:\S+$", value))
