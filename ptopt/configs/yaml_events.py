"""YAML as events, by PyYAML: its loaders are what most training libraries read their files with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import yaml

from ptopt.configs.compose import Event, RefusedError
from ptopt.configs.values import Plain

# The one on libyaml is 25 times faster; wheels have it, a build from source may lack it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS: dict[str | None, list[tuple[str, object]]] = yaml.SafeLoader.yaml_implicit_resolvers
_MAKERS: dict[str, Callable[[yaml.ScalarNode], Plain]] = {
    f"tag:yaml.org,2002:{name}": getattr(yaml.SafeLoader(""), f"construct_yaml_{name}")
    for name in ("null", "bool", "int", "float")
}
_LONGEST_NUMBER = 40


def yaml_events(text: str) -> Iterator[Event]:
    """The events of a YAML text. Raises RefusedError for what is not YAML."""
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            start, end = _offset(event.start_mark) or 0, _offset(event.end_mark) or 0
            if isinstance(event, yaml.ScalarEvent):
                plain = event.implicit[0]
                value = _resolved(event.value) if plain else event.value
                yield Event("scalar", start, end, value, event.value, event.anchor)
            elif isinstance(event, yaml.AliasEvent):
                yield Event("alias", start, end, text=event.anchor or "")
            elif isinstance(event, yaml.CollectionStartEvent):
                kind = "[" if isinstance(event, yaml.SequenceStartEvent) else "{"
                yield Event(kind, start, end, anchor=event.anchor, flow=bool(event.flow_style))
            elif isinstance(event, yaml.CollectionEndEvent):
                yield Event("end", start, end)
    except yaml.MarkedYAMLError as error:
        at = _offset(error.problem_mark or error.context_mark)
        raise RefusedError(f"not YAML: {error.problem or error.context}", at) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedError(f"not YAML: {str(error).partition(chr(10))[0]}") from None


def _offset(mark: object) -> int | None:
    """Both loaders have marks of their own."""
    return getattr(mark, "index", None)


def _resolved(text: str) -> Plain:
    """The value of a scalar without quotes, as the loaders of YAML 1.1 read it; dates stay text."""
    if len(text) > _LONGEST_NUMBER:
        return text
    for tag, pattern in _RESOLVERS.get(text[:1], []):
        if tag in _MAKERS and pattern.match(text):  # type: ignore[attr-defined]
            try:
                return _MAKERS[tag](yaml.ScalarNode(tag, text))
            except (ValueError, OverflowError):
                return text
    return text
