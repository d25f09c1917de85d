"""The sources by name, each with its options and its HTTP client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.sources import discourse, github, packageindex, pytorchdocs, stackexchange
from training.sources.base import Source, SourceError
from training.sources.http import HttpClient
from training.sources.throttle import RequestPolicy


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What all sources share: cache file, contact address, terms that the operator opted in to."""

    cache: Path | None = None
    contact: str = ""
    opted_in: frozenset[str] = frozenset()
    max_requests: int = 10_000
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clients: ExitStack = field(default_factory=ExitStack)  # closes the clients that were made

    def client(
        self, *urls: str, interval: float, robots: bool = False, secrets: Mapping[str, str] | None = None
    ) -> HttpClient:
        """A client for the hosts of `urls`; `secrets` are headers for the first."""
        hosts = [urlsplit(url).netloc for url in urls]
        if not all(hosts):
            raise SourceError(f"not web addresses: {', '.join(urls)}")
        client = HttpClient(
            hosts,
            policy=RequestPolicy(interval=interval, robots=robots, max_requests=self.max_requests),
            cache=self.cache,
            secrets={hosts[0]: secrets} if secrets else None,
            contact=self.contact,
        )
        return self.clients.enter_context(client)


class StackExchangeOptions(Options):
    api: str = stackexchange.API
    site: str = "stackoverflow"
    tag: str = "pytorch"
    queries: tuple[str, ...] = stackexchange.QUERIES
    least_score: int = 3


def _stackexchange(options: StackExchangeOptions, context: SourceContext) -> Source:
    return stackexchange.StackExchange(
        context.client(options.api, interval=0.5),
        key=context.environment.get("STACKEXCHANGE_KEY", ""),
        opted_in=context.opted_in,
        **options.model_dump(),
    )


class DiscourseOptions(Options):
    forum: str = discourse.FORUM
    category: str = ""
    least_likes: int = 2


def _discourse(options: DiscourseOptions, context: SourceContext) -> Source:
    client = context.client(options.forum, interval=1.5, robots=True)
    return discourse.Discourse(client, opted_in=context.opted_in, **options.model_dump())


class GitHubOptions(Options):
    api: str = github.API
    queries: tuple[str, ...] = github.QUERIES


def _github(options: GitHubOptions, context: SourceContext) -> Source:
    token = context.environment.get("GITHUB_TOKEN")
    if not token:
        raise SourceError("GITHUB_TOKEN is not set; a token without any permission will do")
    client = context.client(options.api, interval=1.0, secrets={"authorization": f"Bearer {token}"})
    return github.GitHub(client, opted_in=context.opted_in, **options.model_dump())


class DocsOptions(Options):
    sites: tuple[str, ...] = pytorchdocs.SITES
    topics: str = pytorchdocs.TOPICS


def _docs(options: DocsOptions, context: SourceContext) -> Source:
    client = context.client(*options.sites, interval=1.0, robots=True)
    return pytorchdocs.PyTorchDocs(client, opted_in=context.opted_in, **options.model_dump())


class CommitsOptions(Options):
    clones: tuple[str, ...] = Field(min_length=1, description="FOLDER or NAME=FOLDER, of git clones")
    paths_left_out: tuple[str, ...] = ("tests/", "test/")


def _commits(options: CommitsOptions, context: SourceContext) -> Source:
    from training.sources.commits import Commits

    clones = []
    for clone in options.clones:
        name, equals, folder = clone.rpartition("=")
        clones.append((name if equals else "", Path(folder)))
    return Commits(clones, opted_in=context.opted_in, paths_left_out=options.paths_left_out)


class PackagesOptions(Options):
    packages: tuple[str, ...] = Field(min_length=1)
    index: str = packageindex.INDEX
    files: str = Field(
        f"https://{packageindex.FILES}", description="the host that the index keeps its files on"
    )
    must_mention: str = "torch"


def _packages(options: PackagesOptions, context: SourceContext) -> Source:
    return packageindex.PackageIndex(
        context.client(options.index, options.files, interval=0.5),
        options.packages,
        index=options.index,
        must_mention=options.must_mention,
        opted_in=context.opted_in,
    )


class TeacherOptions(Options):
    base_url: str
    model: str
    per_rule: int = 20
    only: tuple[str, ...] = ()
    max_tokens: int = 4_000
    licence: str = Field("", description="SPDX, where the model's terms say so")
    prompt_price: float = Field(0.0, description="of a million tokens")
    completion_price: float = Field(0.0, description="of a million tokens")
    most: float = Field(0.0, description="what all pulls may cost together")
    seed: int = 0


def _teacher(options: TeacherOptions, context: SourceContext) -> Source:
    from training.sources.teacher import Price, Teacher

    key = context.environment.get("TEACHER_API_KEY")
    secrets = {"authorization": f"Bearer {key}"} if key else None
    values = options.model_dump(exclude={"prompt_price", "completion_price", "most"})
    return Teacher(
        context.client(options.base_url, interval=0.0, secrets=secrets),
        price=Price(options.prompt_price, options.completion_price, options.most),
        opted_in=context.opted_in,
        **values,
    )


class FeedbackOptions(Options):
    private: tuple[str, ...] = Field((), description="private repositories, OWNER/NAME, whose owners agreed")


def _feedback(options: FeedbackOptions, context: SourceContext) -> Source:
    from training.sources.feedback import Feedback

    url = context.environment.get("PTOPT_DATABASE_URL")
    if not url:
        raise SourceError("PTOPT_DATABASE_URL is not set; it names the service's database")
    return Feedback(url, private=options.private)


@dataclass(frozen=True, slots=True)
class Entry:
    """A source that can be made: its options, and the function that makes it."""

    summary: str
    options: type[Options]
    make: Callable[[Any, SourceContext], Source]


SOURCES: Mapping[str, Entry] = {
    "stackexchange": Entry("Stack Exchange, API 2.3 (CC BY-SA: not trained on without opt-in)", StackExchangeOptions, _stackexchange),
    "discourse": Entry("PyTorch's forum (its terms: not trained on without opt-in)", DiscourseOptions, _discourse),
    "github": Entry("issues and merged pull requests; needs GITHUB_TOKEN", GitHubOptions, _github),
    "docs": Entry("PyTorch's documentation and tutorials (BSD-3-Clause)", DocsOptions, _docs),
    "commits": Entry("performance commits of git clones on this machine", CommitsOptions, _commits),
    "packages": Entry("source distributions of a package index", PackagesOptions, _packages),
    "teacher": Entry("pairs that a larger model writes, checked by our rules", TeacherOptions, _teacher),
    "feedback": Entry("labels from the service's database; needs PTOPT_DATABASE_URL", FeedbackOptions, _feedback),
}  # fmt: skip


def make(name: str, options: Mapping[str, Any], context: SourceContext) -> Source:
    """The source with these options. Raises SourceError."""
    entry = SOURCES.get(name)
    if entry is None:
        raise SourceError(f"{name!r} is no source; there are {', '.join(SOURCES)}")
    try:
        checked = entry.options.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(entry.options.model_fields)
        raise SourceError(f"{name}: option {where!r}: {first['msg']}; options: {known}") from None
    return entry.make(checked, context)
