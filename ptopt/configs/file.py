"""One configuration file, recognised: which libraries and tools it configures, and where what stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ptopt.configs import kinds
from ptopt.configs.containers import Container, containers, services
from ptopt.configs.dockerfile import Dockerfile, read_dockerfile
from ptopt.configs.kinds import Block
from ptopt.configs.reading import FORMATS, MAX_BYTES, decoded, read_text
from ptopt.configs.values import Document, Mapping, Refused
from ptopt.findings import Span
from ptopt.pathkind import is_dockerfile
from ptopt.project.facts import NO_FACTS, ProjectFacts

_TEMPLATE = re.compile(r"\{\{-?\s*(?:\.|include|if|range|with|define|template|toYaml|end\b|\$)|\{%-?\s*\w")
_HOLE = re.compile(r"(?<!\$)\{\w+\}|\{\{|@\w+@")  # in the name of a base image
_HELM = "a template: its values are not known"


@dataclass(frozen=True)
class ConfigFile:
    """A configuration of at least one known kind. `document` is empty for a Dockerfile."""

    path: str
    document: Document
    kinds: frozenset[str]
    blocks: tuple[Block, ...] = ()
    dockerfile: Dockerfile | None = None
    facts: ProjectFacts = NO_FACTS

    @property
    def text(self) -> str:
        return self.document.text

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """What manifests and Compose files start."""
        if "compose" in self.kinds and self.document.root is not None:
            return tuple(services(self.document.root))
        found = (container for root in self.document.roots for container in containers(root))
        return tuple(found) if "kubernetes" in self.kinds else ()

    @cached_property
    def jobs(self) -> tuple[tuple[str, Mapping], ...]:
        """The jobs of a workflow by name."""
        root = self.document.root
        jobs = root.mapping("jobs") if root is not None and "workflow" in self.kinds else None
        return tuple((e.key.text, e.value) for e in jobs or () if isinstance(e.value, Mapping))

    @cached_property
    def lines(self) -> list[str]:
        return [line.rstrip("\r") for line in self.text.split("\n")]

    def span(self, start: int, end: int) -> Span:
        first = self.document.line(start)
        return Span(first, max(first, self.document.line(max(end - 1, start))))


def load(path: str, data: bytes, facts: ProjectFacts = NO_FACTS) -> ConfigFile | Refused | None:
    """The file at `path`; None where it is of no known kind, which is no loss."""
    if len(data) > MAX_BYTES:
        return None
    if is_dockerfile(path):
        text = decoded(data)
        if isinstance(text, Refused):
            return text
        read = read_dockerfile(text)
        if read is None:
            return None
        if any(_HOLE.search(stage.image) for stage in read.stages):
            return Refused(_HELM)
        document = Document("dockerfile", text, ())
        return ConfigFile(path, document, frozenset({"dockerfile"}), (), read, facts)
    format_ = FORMATS.get(path[path.rfind(".") :].lower())
    if format_ not in ("yaml", "json") or not kinds.may_be_known(data, format_):
        return None
    text = decoded(data)
    found = text if isinstance(text, Refused) else read_text(format_, text)
    if isinstance(found, Refused):
        if isinstance(text, str) and _TEMPLATE.search(text):
            return Refused(_HELM)
        return found if isinstance(text, Refused) or _certain(text) else None
    return _recognised(path, found, facts)


def _certain(text: str) -> bool:
    """Is a file that cannot be read one of ours for sure?"""
    return (
        re.search(r"^(?:apiVersion|jobs|base_model|finetuning_type|distributed_type):", text, re.M)
        is not None
    )


def _recognised(path: str, document: Document, facts: ProjectFacts) -> ConfigFile | Refused | None:
    root = document.root
    if document.format == "yaml":
        if any(map(kinds.is_kubernetes, document.roots)):
            if _TEMPLATE.search(document.text):
                return Refused(_HELM)
            return ConfigFile(path, document, frozenset({"kubernetes"}), facts=facts)
        if kinds.is_workflow(root):
            return ConfigFile(path, document, frozenset({"workflow"}), facts=facts)
        if kinds.is_compose(root):
            return ConfigFile(path, document, frozenset({"compose"}), facts=facts)
    blocks = tuple(kinds.blocks(document))
    if not blocks:
        return None
    return ConfigFile(path, document, frozenset(block.kind for block in blocks), blocks, facts=facts)
