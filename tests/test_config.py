"""Reading the settings: what is accepted, what is refused and in which words, and what a path gets."""

from __future__ import annotations

import json

import jsonschema
import pathspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.config import Config, ConfigError, PullRequests, config_schema, load_config
from ptopt.globs import parse_glob

KNOWN = {
    "PTO101": "id",
    "PTO102": "id",
    "item-in-step": "name",
    "cat-in-loop": "name",
    "sync": "family",
    "tensor": "family",
}


def load(text: str) -> Config:
    return load_config({".ptopt.toml": text.encode()}, KNOWN)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return caught.value.problems


def test_defaults() -> None:
    config = load_config({}, KNOWN)
    assert config.origin == ""
    assert (config.budget, config.min_confidence) == (5, None)
    assert config.skip == ("tests", "examples", "demos", "benchmarks")


def test_every_key() -> None:
    config = load(
        """
        select = ["tensor"]
        ignore = ["item-in-step"]
        include = ["src/"]
        exclude = ["src/vendor/"]
        skip = []
        budget = 0
        min-confidence = 1
        [per-path-ignores]
        "src/legacy/**" = ["sync", "PTO102"]
        """
    )
    assert config.origin == ".ptopt.toml"
    assert config.select == ("tensor",)
    assert config.per_path_ignores == {"src/legacy/**": ("sync", "PTO102")}
    assert (config.skip, config.budget, config.min_confidence) == ((), 0, 1.0)


def test_every_key_of_pull_requests() -> None:
    assert load("").pull_requests == PullRequests()
    table = load(
        """
        [pull-requests]
        enabled = false
        drafts = true
        bots = true
        skip-authors = ["renovate[bot]"]
        skip-labels = ["wip"]
        max-files = 10
        max-lines = 100
        check-run = true
        sarif = true
        """
    ).pull_requests
    assert (table.enabled, table.drafts, table.bots) == (False, True, True)
    assert (table.skip_authors, table.skip_labels) == (("renovate[bot]",), ("wip",))
    assert (table.max_files, table.max_lines) == (10, 100)
    assert (table.check_run, table.sarif) == (True, True)


def test_a_key_below_the_table_that_it_belongs_above() -> None:
    assert problems("[pull-requests]\ndrafts = true\nbudget = 3\n") == (
        ".ptopt.toml: unknown key 'budget' in pull-requests; it belongs above this table",
    )


def test_a_problem_inside_a_table_names_the_table() -> None:
    found = problems(
        """
        [pull-requests]
        draft = true
        enabled = "yes"
        max-files = 0
        skip-labels = ["a", 3]
        max_lines = 3
        zzzzzz = 1
        """
    )
    assert sorted(found) == [
        ".ptopt.toml: pull-requests.enabled: 'yes' is not allowed, give true or false",
        ".ptopt.toml: pull-requests.max-files: 0 is not allowed, give an integer from 1 to 10000",
        ".ptopt.toml: pull-requests.skip-labels: 3 is not allowed, give a list of labels of 1 to 100 characters, at most 200",
        ".ptopt.toml: unknown key 'draft' in pull-requests, did you mean 'drafts'?",
        ".ptopt.toml: unknown key 'max_lines' in pull-requests, did you mean 'max-lines'?",
        ".ptopt.toml: unknown key 'zzzzzz' in pull-requests; the keys are enabled, drafts, bots, check-run, sarif, skip-authors, skip-labels, max-files, max-lines",
    ]
    assert problems("pull-requests = true") == (
        ".ptopt.toml: pull-requests: True is not allowed, give a table of settings",
    )
    (problem,) = problems('"a.b" = 1')
    assert "the keys are select" in problem


def test_every_setting_says_what_it_allows() -> None:
    schema = config_schema()
    nested = schema["$defs"]["PullRequests"]["properties"]
    for key in [*schema["properties"], *(f"pull-requests.{key}" for key in nested)]:
        table, _, name = key.rpartition(".")
        (problem,) = problems(f"[{table}]\n{name} = 1979-05-27" if table else f"{key} = 1979-05-27")
        assert problem.startswith(f".ptopt.toml: {key}: ")


def test_settings_under_another_name_of_their_file() -> None:
    config = load("budget = 3")
    assert config.read_from("org/.github/.ptopt.toml").origin == "org/.github/.ptopt.toml"
    assert config.origin == ".ptopt.toml"


def test_own_file_wins_over_pyproject() -> None:
    files = {".ptopt.toml": b"budget = 1", "pyproject.toml": b"[tool.ptopt]\nbudget = 2"}
    assert load_config(files, KNOWN).budget == 1
    del files[".ptopt.toml"]
    config = load_config(files, KNOWN)
    assert (config.budget, config.origin) == (2, "pyproject.toml")


@pytest.mark.parametrize(
    "text",
    [
        b"[project]\nname = 'x'\ndependencies = ['ptopt']",
        b"this is no TOML",
        b"tool = 3 # ptopt",
        b"# " + b"x" * 100_000,
    ],
)
def test_a_pyproject_without_settings_gives_the_defaults(text: bytes) -> None:
    assert load_config({"pyproject.toml": text}, KNOWN) == Config()


def test_all_problems_are_told_together() -> None:
    found = problems(
        """
        buget = 3
        min-confidence = 1.5
        budget = true
        select = ["PTO101", "itm-in-step"]
        exclude = ["!keep.py"]
        skip = ["test"]
        [per-path-ignores]
        "a/*.py" = ["synk"]
        """
    )
    assert sorted(found) == [
        ".ptopt.toml: budget: True is not allowed, give an integer from 0 to 50",
        ".ptopt.toml: exclude: bad glob '!keep.py': a glob cannot start with `!`, use `include` for that",
        ".ptopt.toml: min-confidence: 1.5 is not allowed, give a number from 0 to 1",
        ".ptopt.toml: per-path-ignores, glob 'a/*.py': unknown rule 'synk', did you mean 'sync'?",
        ".ptopt.toml: select: unknown rule 'itm-in-step', did you mean 'item-in-step'?",
        ".ptopt.toml: skip: 'test' is not allowed, give a list of 'tests', 'examples', 'demos', 'benchmarks'",
        ".ptopt.toml: unknown key 'buget', did you mean 'budget'?",
    ]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("min-confidence = nan", "nan"),
        ("min-confidence = '1'", "from 0 to 1"),
        ("budget = 51", "0 to 50"),
        ("budget = 2.0", "0 to 50"),
        ("select = 'PTO101'", "a list of rule"),
        ("include = [1]", "a list of globs"),
        ("include = ['']", "1 to 200 characters"),
        (f"include = ['{'a' * 201}']", "1 to 200 characters"),
        ("include = ['/']", "repository root"),
        ("include = ['a//b']", "repository root"),
        ("include = ['../secret']", "repository root"),
        (r"include = ['a\b']", "`/`"),
        ("per-path-ignores = []", "a table"),
        ("min_confidence = 0.5", "'min-confidence'"),
        ("zzzz = 1", "the keys are select"),
        ("ignore = ['qqqqqqqq']", "see `ptopt rules`"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(line: str, word: str) -> None:
    (problem,) = problems(line)
    assert problem.startswith(".ptopt.toml: ")
    assert word in problem


def test_an_error_in_pyproject_names_the_table() -> None:
    with pytest.raises(ConfigError, match=r"^pyproject\.toml \[tool\.ptopt\]: unknown key 'bugdet'"):
        load_config({"pyproject.toml": b"[tool.ptopt]\nbugdet = 1"}, KNOWN)
    with pytest.raises(ConfigError, match=r"pyproject\.toml \[tool\.ptopt\]: 3 is not a table"):
        load_config({"pyproject.toml": b"[tool]\nptopt = 3"}, KNOWN)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"budget = ", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"# " + b"x" * 70_000, "at most 65536"),
        (b"a = " + b"[" * 20_000, "nested too deeply"),
        (b"a = " + b"9" * 10_000, "not valid TOML"),
        (b".".join([b"a"] * 30_000) + b" = 1", "dots in one line"),
    ],
)
def test_hostile_files_are_refused(data: bytes, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        load_config({".ptopt.toml": data}, KNOWN)


def test_errors_are_bounded_and_printable() -> None:
    many = problems("\n".join(f"key{i} = 1" for i in range(3000)))
    assert len(many) == 51
    assert many[-1] == ".ptopt.toml: and 2950 more problems"
    (problem,) = problems('"\\u001b[31m\\u202e' + "x" * 5000 + '" = 1')
    assert problem.isprintable()
    assert len(problem) < 300


def test_too_many_globs_are_refused() -> None:
    (problem,) = problems("include = [" + "'a'," * 201 + "]")
    assert "at most 200" in problem


def test_the_schema_agrees_with_the_reader() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(json.loads(Config().model_dump_json(by_alias=True)))
    for bad in ({"budget": 51}, {"buget": 1}, {"skip": ["test"]}, {"min_confidence": 0.5}, {"include": [""]}):
        assert not validator.is_valid(bad), bad


@pytest.mark.parametrize(
    ("text", "default_on", "path", "expected"),
    [
        ("", True, "a.py", True),
        ("", False, "a.py", False),
        ("select = ['sync']", False, "a.py", True),
        ("select = ['item-in-step']", False, "a.py", True),
        ("select = ['PTO102']", False, "a.py", False),
        ("ignore = ['sync']", True, "a.py", False),
        ("select = ['PTO101']\nignore = ['sync']", False, "a.py", False),
        ("select = ['PTO102']", True, "a.py", False),
        ("select = []", True, "a.py", False),
        ("select = ['ALL']", False, "a.py", True),
        ("extend-select = ['sync']", False, "a.py", True),
        ("extend-select = ['PTO102']", True, "a.py", True),
        ("select = ['PTO102']\nextend-select = ['PTO101']", False, "a.py", True),
        ("extend-select = ['PTO101']\nignore = ['sync']", False, "a.py", False),
        ("[per-path-ignores]\n'old/' = ['PTO101']", True, "old/a.py", False),
        ("[per-path-ignores]\n'old/' = ['PTO101']", True, "new/a.py", True),
        ("[per-path-ignores]\n'old/' = ['PTO102']", True, "old/a.py", True),
    ],
)
def test_enabled(text: str, default_on: bool, path: str, expected: bool) -> None:
    assert load(text).enabled("PTO101", "item-in-step", "sync", default_on, path) is expected


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/model.py", "tests"),
        ("pkg/Testing/model.py", "tests"),
        ("test_model.py", "tests"),
        ("pkg/model_test.py", "tests"),
        ("pkg/conftest.py", "tests"),
        ("examples/train.py", "examples"),
        ("docs/conf.py", "examples"),
        ("demo/app.py", "demos"),
        ("demo.py", "demos"),
        ("demo_video.py", "demos"),
        ("pkg/benchmarks/tests/speed.py", "benchmarks"),
        ("test.py", None),
        ("src/test.py", None),
        ("train_test.py", None),
        ("train_and_test.py", None),
        ("demographics.py", None),
        ("latest.py", None),
        ("testbed/train.py", None),
        ("notebooks/train.ipynb", None),
        ("train.py", None),
    ],
)
def test_kinds_of_files_that_are_skipped(path: str, kind: str | None) -> None:
    named = "documentation and examples" if kind == "examples" else kind
    expected = f"{named} are skipped by default (`skip`)" if kind else None
    assert Config().why_skipped(path) == expected
    assert load("skip = []").why_skipped(path) is None


def test_why_skipped_names_the_setting() -> None:
    config = load("include = ['src/']\nexclude = ['*_pb2.py']\nskip = ['tests']")
    assert config.why_skipped("src/a.py") is None
    assert config.why_skipped("src/examples/a.py") is None
    assert config.why_skipped("lib/a.py") == "matches no glob in `include`"
    assert config.why_skipped("src/a_pb2.py") == "excluded by `exclude` ('*_pb2.py')"
    assert config.why_skipped("src/tests/a.py") == "tests are skipped (`skip`)"


NAMES = st.text("ab.", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
GLOB_PARTS = st.one_of(st.just("**"), st.text("ab.*?", min_size=1, max_size=4), st.just("[!a]*"))
GLOBS = st.builds(
    lambda slash, parts, end: slash + "/".join(parts) + end,
    st.sampled_from(["", "/"]),
    st.lists(GLOB_PARTS, min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
).filter(lambda glob: not {".", ".."} & set(glob.split("/")) and not glob.endswith("**/"))
# git takes a `**/` at the end for folders only, as we do; pathspec takes it for files too.


@given(GLOBS, PATHS)
def test_globs_mean_what_they_mean_in_a_gitignore(glob: str, path: str) -> None:
    assert parse_glob(glob).matches(path) == pathspec.GitIgnoreSpec.from_lines([glob]).match_file(path)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 99 + "*b", "a" * 4000),
        ("/".join(["**", "*a*"] * 28) + "/b", "/".join(["aaa"] * 1000)),
        ("**/" * 60 + "b", "a/" * 2000 + "a"),
        ("[!b]*" * 39 + "b", "a" * 4000),
        ("?*" * 99 + "b", "a" * 4000),
    ],
)
def test_no_glob_is_catastrophic(glob: str, path: str) -> None:
    # An engine that backtracks would need more than 10**20 steps for these: that the test ends is the proof.
    assert len(glob) <= 200
    assert not parse_glob(glob).matches(path)
    # Every star but the last of a component stands in a group that is never entered twice.
    for segment in parse_glob(glob).segments:
        assert segment is None or segment.pattern.count(".*") <= segment.pattern.count(".*?") + 1


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_give_settings_or_a_config_error(data: bytes) -> None:
    outcome: Config | tuple[str, ...]
    try:
        outcome = load_config({".ptopt.toml": data}, KNOWN)
    except ConfigError as error:
        outcome = error.problems
    assert isinstance(outcome, Config) or all(problem.startswith(".ptopt.toml") for problem in outcome)


def test_a_table_that_belongs_into_the_project_file() -> None:
    with pytest.raises(
        ConfigError, match=r"^\.ptopt\.toml: settings stand at the top .* without a \[tool\.ptopt\]"
    ):
        load_config({".ptopt.toml": b"[tool.ptopt]\nbudget = 3\n"}, {})
