"""What a repository may set, in `.ptopt.toml` or in the `[tool.ptopt]` table of `pyproject.toml`.

Where both exist, `.ptopt.toml` is read and the table is not. The configuration may come from the pull request
under review and is hostile data: its size, the number and the form of its globs, and the length of an error are bounded.

This is the one module that imports pydantic; import it where it is used.
"""

from __future__ import annotations

import difflib
import functools
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from ptopt.globs import parse_glob
from ptopt.pathkind import KINDS, Kind, is_evaluation, path_kind
from ptopt.spelling import BY_MODEL, similar

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FILE = ".ptopt.toml"
PROJECT_FILE = "pyproject.toml"
ALL = "ALL"  # in the place of a rule: every one

MAX_BYTES = 64 * 1024  # of a file with settings
_MAX_DOTS_IN_LINE = 1000  # the time that TOML parsers take grows with the square of the parts of a dotted key
_MAX_ITEMS = 200
_MAX_RULES = 1_000  # in a list of rules: all that there are may be named
_MAX_PROBLEMS = 50
_PREFIX = re.compile(r"[A-Z]{2,20}[0-9]{0,10}")  # of the ids of rules; an id is one


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` says all that is wrong, one sentence each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


def _check_glob(text: str) -> str:
    try:
        parse_glob(text)
    except ValueError as error:
        raise PydanticCustomError("glob", "{reason}", {"reason": str(error)}) from None
    return text


def is_prefix(text: str, known: Iterable[str]) -> bool:
    """Do ids of rules begin with the text, as `PTO101` does with `PTO1`? It stands for all of them."""
    return _PREFIX.fullmatch(text) is not None and any(
        name.startswith(text) and _PREFIX.fullmatch(name) for name in known
    )


def _check_rule(text: str, info: ValidationInfo) -> str:
    known: Mapping[str, str] | None = info.context
    if known is not None and text not in known and text != ALL and not is_prefix(text, known):
        raise PydanticCustomError("rule", "unknown rule")
    return text


_GlobText = Annotated[StrictStr, Field(min_length=1, max_length=200), AfterValidator(_check_glob)]
_RuleText = Annotated[StrictStr, Field(min_length=1, max_length=100), AfterValidator(_check_rule)]
_Globs = Annotated[tuple[_GlobText, ...], Field(max_length=_MAX_ITEMS)]
_Rules = Annotated[tuple[_RuleText, ...], Field(max_length=_MAX_RULES)]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=100)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=_MAX_ITEMS)]

_SETTINGS = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class PullRequests(BaseModel):
    """Which pull requests are reviewed on GitHub, and what is posted besides the review."""

    model_config = _SETTINGS

    enabled: StrictBool = Field(default=True, description="Review the pull requests of this repository.")
    drafts: StrictBool = Field(default=False, description="Review drafts too, not only once they are ready.")
    bots: StrictBool = Field(default=False, description="Review pull requests that a bot opened.")
    skip_authors: _Names = Field(
        default=(), description="Never review pull requests of these logins (a bot's ends in `[bot]`)."
    )
    skip_labels: _Names = Field(
        default=(), description="Never review pull requests that have one of these labels."
    )
    max_files: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        default=300, description="Pull requests that change more files than this are not reviewed."
    )
    max_lines: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        default=20_000, description="Pull requests that add and delete more lines than this are not reviewed."
    )
    check_run: StrictBool = Field(
        default=False, description="Show the findings as a check run with annotations too."
    )
    sarif: StrictBool = Field(default=False, description="Upload the findings to code scanning too.")


class Config(BaseModel):
    """Settings of ptopt, in `.ptopt.toml` or in the `[tool.ptopt]` table of `pyproject.toml`."""

    model_config = _SETTINGS | ConfigDict(title="ptopt")

    select: _Rules | None = Field(
        default=None,
        description="The rules to report: ids, names, families, the start of ids (`PTO1`) or `ALL`. "
        "Left out, those that are on by default.",
    )
    extend_select: _Rules = Field(
        default=(), description="Rules to report besides those of `select`, named in the same ways."
    )
    ignore: _Rules = Field(
        default=(),
        description="Rules to switch off, named in the same ways. Wins over `select` and `extend-select`.",
    )
    per_path_ignores: Annotated[dict[_GlobText, _Rules], Field(max_length=_MAX_ITEMS)] = Field(
        default_factory=dict,
        description="Rules to switch off in some files: from a gitignore-style glob to a list as in `ignore`.",
    )
    include: _Globs = Field(default=(), description="Review only the files that match one of these globs.")
    exclude: _Globs = Field(default=(), description="Never review the files that match one of these globs.")
    skip: Annotated[tuple[Kind, ...], Field(max_length=_MAX_ITEMS)] = Field(
        default=KINDS,
        description="Kinds of files that are not reviewed. An empty list reviews them all. A file that is named on the "
        "command line is reviewed whatever its kind, unless with `--force-exclude`.",
    )
    budget: Annotated[int, Field(strict=True, ge=0, le=50)] = Field(
        default=5, description="The largest number of comments in one review."
    )
    min_confidence: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        default=None,
        description="Findings of a lower confidence are not shown: the probability that a maintainer would act on it, by the "
        "ranker. Left out, the ranker's own threshold holds; 0 shows all that the rules propose.",
    )

    learn: StrictBool = Field(
        default=False,
        description="Let what people do about comments in this repository train the ranker and the model that all "
        "repositories share. Taken from the base branch of the repository itself; of a private repository only where "
        "the operator of the service names it, too.",
    )
    pull_requests: PullRequests = Field(
        default_factory=PullRequests,
        description="Which pull requests are reviewed on GitHub. Taken from the base branch.",
    )

    _origin: str = PrivateAttr("")
    _asked: frozenset[str] = PrivateAttr(frozenset())
    _usual: tuple[float | None] | None = PrivateAttr(None)
    _named: frozenset[str] = PrivateAttr(frozenset())

    @property
    def origin(self) -> str:
        """The file that the settings were read from; "" when the defaults are in force."""
        return self._origin

    @property
    def opted_in(self) -> bool:
        """May the repository's feedback be learned from? Its own file says so; nobody says it for another repository."""
        return self.learn and self._origin in (OWN_FILE, PROJECT_FILE)

    def read_from(self, origin: str) -> Config:
        """The same settings under another name of their file."""
        copy = self.model_copy()
        copy._origin = origin
        return copy

    def asking_for(self, rules: Iterable[str]) -> Config:
        """The same settings for somebody who names these rules, by id, to see all that they find."""
        copy = self.model_copy()
        copy._asked = frozenset(rules)
        return copy

    def at_least(self, confidence: float) -> Config:
        """The same settings for somebody who asks for the findings of this confidence, once."""
        copy = self.model_copy(update={"min_confidence": confidence})
        copy._usual = (self.min_confidence,)
        return copy

    def naming(self, paths: Iterable[str]) -> Config:
        """The same settings for somebody who names these files: none of them is skipped for its kind."""
        copy = self.model_copy()
        copy._named = frozenset(paths)
        return copy

    @property
    def usual_min_confidence(self) -> float | None:
        """That of the settings, whatever somebody asks for once."""
        return self.min_confidence if self._usual is None else self._usual[0]

    @property
    def asked(self) -> frozenset[str]:
        """The rules, by id, of which everything is shown, whatever the ranker makes of it."""
        return self._asked

    def enabled(self, rule_id: str, name: str, family: str, default_on: bool, path: str) -> bool:
        """Whether a rule is on for the file at `path`."""
        keys = _keys(rule_id, name, family)
        return self.selects(rule_id, name, family, default_on) and not any(
            not keys.isdisjoint(rules) and parse_glob(glob).matches(path)
            for glob, rules in self.per_path_ignores.items()
        )

    def selects(self, rule_id: str, name: str, family: str, default_on: bool) -> bool:
        """Whether a rule is on, but for what `per-path-ignores` says of single files."""
        keys = _keys(rule_id, name, family)
        selected = default_on if self.select is None else not keys.isdisjoint(self.select)
        return keys.isdisjoint(self.ignore) and (selected or not keys.isdisjoint(self.extend_select))

    def names(self, rule_id: str, name: str, family: str) -> bool:
        """Whether the lists of rules to report name it."""
        keys = _keys(rule_id, name, family)
        return not keys.isdisjoint((*(self.select or ()), *self.extend_select))

    def switches_off_at(self, path: str) -> bool:
        """Do `per-path-ignores` switch rules off for the file at `path`?"""
        return any(rules and parse_glob(glob).matches(path) for glob, rules in self.per_path_ignores.items())

    def why_skipped(self, path: str, data: bytes | None = None) -> str | None:
        """None: the file is reviewed; else the reason, in words. `path` is relative to the repository root.

        With its `data`, a script that only has the name of a test is none.
        """
        if self.include and _first_match(self.include, path) is None:
            return "matches no glob in `include`"
        if (glob := _first_match(self.exclude, path)) is not None:
            return f"excluded by `exclude` ({glob!r})"
        kind = path_kind(path)
        if kind is not None and kind in self.skip and path not in self._named:
            if data is not None and is_evaluation(path, data):
                return None
            by_default = "" if "skip" in self.model_fields_set else " by default"
            named = "documentation and examples" if kind == "examples" else kind
            return f"{named} are skipped{by_default} (`skip`)"
        return None


@functools.cache
def _keys(rule_id: str, name: str, family: str) -> frozenset[str]:
    """What a list of rules may call it."""
    return frozenset({rule_id, name, family, ALL, *(rule_id[:end] for end in range(2, len(rule_id)))})


def _first_match(globs: Iterable[str], path: str) -> str | None:
    return next((glob for glob in globs if parse_glob(glob).matches(path)), None)


def config_schema() -> dict[str, Any]:
    """The JSON schema of the settings."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def load_config(files: Mapping[str, bytes], known: Mapping[str, str]) -> Config:
    """Read the settings from the bytes of `.ptopt.toml` and `pyproject.toml`, as far as `files` holds them.

    `known` maps each rule id, rule name and family to what it is ("id", "name", "family", `BY_MODEL`). ConfigError lists
    every problem.
    """
    if OWN_FILE in files:
        return _validate(_parse(OWN_FILE, files[OWN_FILE]), OWN_FILE, OWN_FILE, known)
    project = files.get(PROJECT_FILE, b"")
    # A project file that does not name ptopt is none of its business, be it huge or broken.
    tool = _parse(PROJECT_FILE, project).get("tool") if b"ptopt" in project else None
    if not isinstance(tool, dict) or "ptopt" not in tool:
        return Config()
    where = f"{PROJECT_FILE} [tool.ptopt]"
    if not isinstance(tool["ptopt"], dict):
        raise ConfigError([f"{where}: {_show(tool['ptopt'])} is not a table of settings"])
    return _validate(tool["ptopt"], PROJECT_FILE, where, known)


def _parse(name: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise ConfigError([f"{name}: {len(data)} bytes are too many, at most {MAX_BYTES} are read"])
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.count(b".") > _MAX_DOTS_IN_LINE:
            raise ConfigError([f"{name}, line {number}: more than {_MAX_DOTS_IN_LINE} dots in one line"])
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError([f"{name}: not UTF-8 text, see byte {error.start}"]) from None
    except RecursionError:
        raise ConfigError([f"{name}: values are nested too deeply"]) from None
    except ValueError as error:
        raise ConfigError([f"{name}: not valid TOML: {str(error)[:200]}"]) from None


def _validate(data: dict[str, Any], origin: str, where: str, known: Mapping[str, str]) -> Config:
    try:
        config = Config.model_validate(data, context=known)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [_problem(detail, where, known) for detail in details[:_MAX_PROBLEMS]]
        if len(details) > _MAX_PROBLEMS:
            problems.append(f"{where}: and {len(details) - _MAX_PROBLEMS} more problems")
        raise ConfigError(problems) from None
    config._origin = origin
    return config


_TABLE = "pull-requests"
_ITEMS = f"at most {_MAX_ITEMS}"
_RULES = f"at most {_MAX_RULES:,}"
_ALLOWED = {
    "select": f"a list of rule ids, starts of ids, rule names or families, {_RULES}",
    "extend-select": f"a list of rule ids, starts of ids, rule names or families, {_RULES}",
    "ignore": f"a list of rule ids, starts of ids, rule names or families, {_RULES}",
    "per-path-ignores": f"a table from globs to lists of rule ids, starts of ids, rule names or families, {_ITEMS}",
    "include": f"a list of globs of 1 to 200 characters, {_ITEMS}",
    "exclude": f"a list of globs of 1 to 200 characters, {_ITEMS}",
    "skip": "a list of " + ", ".join(repr(kind) for kind in KINDS),
    "budget": "an integer from 0 to 50",
    "min-confidence": "a number from 0 to 1",
    "learn": "true or false",
    "pull-requests": "a table of settings",
    **dict.fromkeys(
        (f"{_TABLE}.{key}" for key in ("enabled", "drafts", "bots", "check-run", "sarif")), "true or false"
    ),
    f"{_TABLE}.skip-authors": f"a list of logins of 1 to 100 characters, {_ITEMS}",
    f"{_TABLE}.skip-labels": f"a list of labels of 1 to 100 characters, {_ITEMS}",
    f"{_TABLE}.max-files": "an integer from 1 to 10000",
    f"{_TABLE}.max-lines": "an integer from 1 to 1000000",
}


def _problem(detail: ErrorDetails, where: str, known: Mapping[str, str]) -> str:
    key, *inner = (str(part) for part in detail["loc"])
    value = detail["input"]
    if detail["type"] == "extra_forbidden" and (where, key) == (OWN_FILE, "tool"):
        return f"{where}: settings stand at the top of this file, without a [tool.ptopt] above them"
    table = f"{_TABLE}." if key == _TABLE and inner else ""
    if table:
        key = inner.pop(0)
    if detail["type"] == "extra_forbidden":
        keys = [k.removeprefix(table) for k in _ALLOWED if k.startswith(f"{_TABLE}.") == bool(table)]
        unknown = _show(key) + (f" in {_TABLE}" if table else "")
        if table and key in _ALLOWED:
            return f"{where}: unknown key {unknown}; it belongs above this table"
        return f"{where}: unknown key {unknown}{_nearest(key, keys, 'the keys are ' + ', '.join(keys))}"
    key = table + key
    place = f"{where}: {key}"
    if key == "per-path-ignores" and inner:
        place += f", glob {_show(inner[0])}"
    if detail["type"] == "rule":
        return f"{place}: unknown rule {_show(value)}{_nearest_rule(str(value), known)}"
    if detail["type"] == "glob":
        return f"{place}: bad glob {_show(value)}: {detail['msg']}"
    allowed = _ALLOWED["ignore"] if key == "per-path-ignores" and inner else _ALLOWED[key]
    return f"{place}: {_show(value)} is not allowed, give {allowed}"


def _nearest(name: str, choices: Iterable[str], otherwise: str) -> str:
    folded = {choice.lower().replace("_", "-"): choice for choice in choices}
    close = difflib.get_close_matches(name[:100].lower().replace("_", "-"), folded, n=1)
    return f", did you mean {folded[close[0]]!r}?" if close else f"; {otherwise}"


def _nearest_rule(name: str, known: Mapping[str, str]) -> str:
    close = similar(name, (key for key, kind in known.items() if kind != BY_MODEL))
    return f", did you mean {close[0]!r}?" if close else "; see `ptopt rules`"


def _show(value: object) -> str:
    # repr escapes control and direction characters, which an error may carry to a terminal or a web page.
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
