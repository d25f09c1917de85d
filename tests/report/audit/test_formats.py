"""The formats of an audit, also of one whose every text is hostile."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ptopt.audit.values import (
    Audit,
    Checked,
    EntryPoint,
    Gap,
    Good,
    Level,
    Measure,
    ModelReading,
    Phase,
    Place,
    State,
    Step,
    Weighed,
)
from ptopt.findings import Condition, Finding, Impact, LeftOut, NotReviewed, Severity, Span
from ptopt.report.audit import FORMATS, render
from tests.security.judge import HOSTILE, assert_inert

_TAGS = frozenset(
    "html head meta title style body header main footer section article details summary h1 h2 h3 p ul ol li b i a code "
    "small span div table thead tbody tr th td".split()
)
_ATTRIBUTES = frozenset(
    "lang charset name content http-equiv class id style href open scope aria-hidden".split()
)
_MARKUP = frozenset({"heading_open", "strong_open", "link_open", "blockquote_open"})


def audit_of(text: str, scripts: int = 2) -> Audit:
    """An audit with something of everything, in which the texts of the repository are `text`."""
    place = Place(text, 3)
    impact = Impact("time", 1.0, 9.0, "the training step", "on an A100", "published", "https://example.org/a")
    measures = tuple(Measure(f"m{s}", "Mixed precision", s, text, (place, place)) for s in State)
    entry = EntryPoint(text, 1, "PyTorch", place, 3, measures, (text,))
    finding = Finding(
        "PTO101", "item-every-step", "sync", Severity.HIGH, text, Span(1, 2), text, text, text, 0.7, "f" * 32, impact=(impact,)
    )  # fmt: skip
    return Audit(
        name=text,
        files=2,
        entries=(entry,) * scripts,
        findings=tuple(Weighed(finding, level, "on every step", (place,)) for level in Level),
        gaps=tuple(
            Gap("tf32", "TF32", level, "Do it.", "it is old", (text,), (place,), (impact,)) for level in Level
        ),
        good=(Good("torch.compile", (text,), (text, text)),),
        plan=(Phase("Next", "an hour", (Step(text, "a flag", text, text, (impact,), (place,)),)),),
        notes=("Ranges overlap.",),
        not_judged=(text,),
        not_reviewed=(NotReviewed(text, text),),
    )


def read_by_model(text: str) -> Audit:
    """The same after a model, whose words are `text`, too, changed the first row of each table and agreed with the others."""
    audit = audit_of(text)
    entries = []
    for entry in audit.entries:
        first, *others = entry.measures
        changed = dataclasses.replace(first, detail=f'"{text}" (large)', checked=Checked("large", first))
        agreed = [dataclasses.replace(row, checked=Checked("large")) for row in others]
        entries.append(dataclasses.replace(entry, measures=(changed, *agreed)))
    reading = ModelReading(
        "large", scripts=2, agreed=6, changed=2, refused=1, findings=3, refuted=1, invalid=1, note=text
    )
    return dataclasses.replace(audit, entries=tuple(entries), model=reading)


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment", {}))


def assert_harmless(text: str, plain: Page) -> None:
    """The page has the elements of one without hostile text, no other attributes, and links of ours alone."""
    page = Page(text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    for tag, attributes in page.tags:
        assert tag in _TAGS
        assert attributes.keys() <= _ATTRIBUTES
        link = attributes.get("href")
        assert link is None or link.startswith(
            ("#", "https://example.org/", "https://github.com/ptopt/ptopt/")
        )


@pytest.fixture(scope="module")
def plain() -> Page:
    return Page(render("html", audit_of("plain")))


def test_html_of_hostile_text(plain: Page) -> None:
    page = render("html", audit_of(HOSTILE.replace("`", "'")))  # code spans become elements of ours
    assert_harmless(page, plain)
    read = Page(render("html", read_by_model("plain")))
    assert_harmless(render("html", read_by_model(HOSTILE.replace("`", "'"))), read)
    assert page.replace("\n", "").isprintable()


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(
        alphabet=st.one_of(st.sampled_from("<>&\"'`=/ \n-!"), st.characters()), min_size=1, max_size=60
    )
)
def test_html_of_any_text(text: str) -> None:
    code_spans_are_ours = text.replace("`", "'")  # in prose they become elements
    assert_harmless(render("html", audit_of(code_spans_are_ours)), Page(render("html", audit_of("plain"))))


def test_html_code_spans_hold_escaped_text() -> None:
    page = Page(render("html", audit_of("`<img src=x onerror=evil()>`")))
    assert all(tag in _TAGS for tag, _ in page.tags)
    assert any("onerror" in said for said in page.said)


def test_html_needs_nothing_from_elsewhere() -> None:
    page = render("html", audit_of("plain"))
    assert "default-src 'none'" in page
    assert not any(word in page for word in ("<script", "<link", "<img", "@import", "url("))
    assert "prefers-color-scheme: dark" in page


def test_markdown_of_hostile_text() -> None:
    assert_inert(render("markdown", audit_of(HOSTILE, scripts=10)), markup=_MARKUP)
    assert_inert(render("markdown", read_by_model(HOSTILE)), markup=_MARKUP)


def test_many_tables_are_folded_in_markdown() -> None:
    audit = audit_of("plain", scripts=10)
    different = tuple(
        dataclasses.replace(entry, limits=(f"limit {number}",))
        for number, entry in enumerate(audit.entries, 1)
    )
    shown = render("markdown", dataclasses.replace(audit, entries=different))
    assert shown.count("<details>") == 2


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_scripts_whose_rows_are_the_same_share_a_table(name: str) -> None:
    audit = audit_of("plain", scripts=3)
    named = tuple(
        dataclasses.replace(entry, path=f"train_{number}.py") for number, entry in enumerate(audit.entries)
    )
    shown = render(name, dataclasses.replace(audit, entries=named), width=400)
    one = render(name, dataclasses.replace(audit, entries=named[:1]), width=400)
    title = audit.entries[0].measures[-1].title
    assert shown.count(title) == one.count(title)
    assert all(f"train_{number}.py" in shown for number in range(3))


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(
        alphabet=st.one_of(st.sampled_from("<>&`|*_[]()#@:\\\n-!$~"), st.characters()),
        min_size=1,
        max_size=60,
    )
)
def test_markdown_of_any_text(text: str) -> None:
    assert_inert(render("markdown", audit_of(text)), markup=_MARKUP)
    assert_inert(render("markdown", read_by_model(text)), markup=_MARKUP)


@pytest.mark.parametrize("text", ["plain", HOSTILE])
def test_the_terminal_gets_printable_text(text: str) -> None:
    for audit in (audit_of(text), read_by_model(text)):
        shown = render("terminal", audit, width=80)
        assert shown.replace("\n", "").isprintable()
        assert "Critical" in shown


def test_what_to_do_stands_before_the_tables_of_a_page() -> None:
    audit = audit_of("plain")
    other = dataclasses.replace(audit.entries[0], path="other.py", framework="Lightning")
    page = Page(render("html", dataclasses.replace(audit, entries=(audit.entries[0], other))))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert ids == ["critical", "moderate", "plan", "low", "good", "measures"]
    links = [attributes["href"] for _, attributes in page.tags if str(attributes.get("href")).startswith("#")]
    assert sorted(links) == sorted(f"#{each}" for each in ids if each != "measures")
    assert not any("open" in attributes for tag, attributes in page.tags if tag == "details")
    alone = Page(render("html", audit_of("plain", scripts=1)))
    assert sum("open" in attributes for tag, attributes in alone.tags if tag == "details") == 1


def test_the_plan_of_markdown_stands_before_what_has_low_priority() -> None:
    shown = render("markdown", audit_of("plain"))
    titles = re.findall(r"^### (.*)", shown, re.MULTILINE)
    assert titles[:4] == ["Critical priority", "Moderate priority", "Plan", "Low priority"]


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_priority_and_severity_cannot_be_confused(name: str) -> None:
    """A review states the severity of a rule; an audit shows it beside its own priority, and says how they relate."""
    audit = audit_of("plain")
    shown = " ".join(render(name, audit, width=400).split())
    assert "by priority: 2 critical, 2 moderate, 2 low" in shown
    assert "Priority (critical, moderate, low) says what to do first" in shown
    assert shown.count("high severity, on every step") == len(audit.findings)
    finding = json.loads(render("json", audit))["findings"][0]
    assert (finding["priority"], finding["severity"]) == ("critical", "high")


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_the_legend_explains_the_priorities_that_are_there(name: str) -> None:
    audit = audit_of("plain")
    measures = dataclasses.replace(audit, findings=())
    findings = dataclasses.replace(audit, gaps=())
    of_finding, of_measure = "For a finding it combines", "For a measure that is off it is"
    for each, said in ((audit, (True, True)), (measures, (False, True)), (findings, (True, False))):
        shown = " ".join(render(name, each, width=400).split())
        assert (of_finding in shown, of_measure in shown) == said


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_what_is_no_finding_is_counted(name: str) -> None:
    audit = audit_of("plain")
    assert "left out" not in render(name, audit, width=400)
    assert json.loads(render("json", audit))["left_out"] == 0
    audit = dataclasses.replace(
        audit, left_out=LeftOut({Condition.CONFIDENCE: 4}, {Condition.CONFIDENCE: 0.44}, 0, 0)
    )
    shown = " ".join(render(name, audit, width=400).split())
    assert "4 places left out: seldom worth a change (confidence below 0.44)" in shown
    assert "--min-confidence 0" in shown
    assert json.loads(render("json", audit))["left_out"] == 4


@pytest.fixture(scope="module")
def schema() -> Any:
    path = resources.files("ptopt.report.audit") / "audit.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["plain", HOSTILE])
def test_json_follows_the_schema(schema: Any, text: str) -> None:
    Draft202012Validator.check_schema(schema)
    for audit in (audit_of(text), read_by_model(text)):
        document = json.loads(render("json", audit))
        Draft202012Validator(schema).validate(document)
        assert document["entry_points"][0]["path"] == text
    first, second = document["entry_points"][0]["measures"][:2]
    assert first["detail"] == f'"{text}" (large)' and first["checked"]["before"]["detail"] == text
    assert second["checked"] == {"model": "large", "before": None}
    assert document["model"]["changed"] == 2


def test_the_schema_refuses_fields_it_does_not_know(schema: Any) -> None:
    document = json.loads(render("json", audit_of("plain")))
    document["gaps"][0]["extra"] = 1
    assert not Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize("name", FORMATS)
def test_an_audit_that_found_nothing(name: str) -> None:
    empty = Audit("empty", 0, (), (), (), (), ())
    assert render(name, empty).endswith("\n")
    assert render(name, dataclasses.replace(empty, files=3)) != render(name, empty)


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_what_a_model_changed_stands_beside_what_the_analysis_said(name: str) -> None:
    def words(audit: Audit) -> str:
        text = render(name, audit, width=400)
        return " ".join(
            ("\n".join(Page(text).said) if name == "html" else text.replace("\u200b", "")).split()
        )

    shown = words(read_by_model("plain"))
    assert shown.count('"plain" (large)') == shown.count("The static audit said: on, plain") == 1
    assert (
        "Checked by large: 6 rows confirmed, 2 changed; 1 change dropped after a second look; 1 of 3 findings left"
        in shown
    )
    assert "Not all was checked: plain." in shown
    before = words(audit_of("plain"))
    assert "audit said" not in before and "Checked" not in before


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_each_figure_stands_with_its_source(name: str) -> None:
    shown = " ".join(render(name, audit_of("plain"), width=200).split())
    assert "up to 9× faster on the training step" in shown
    assert "on an A100" in shown
    assert "https://example.org/a" in shown


def test_a_long_link_is_whole_in_a_narrow_terminal() -> None:
    audit = audit_of("plain")
    link = f"https://example.org/{'abcdefghij' * 9}"
    gap = dataclasses.replace(
        audit.gaps[0], impact=(Impact("time", 1.0, 2.0, "the step", "an A100", "published", link),)
    )
    assert link in render("terminal", dataclasses.replace(audit, gaps=(gap,)), width=60)


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_setting_of_a_configuration_has_the_figure_of_the_rule_about_code(form: str) -> None:
    """`detect_anomaly` costs the same in a file as in a call; it was measured on a CPU, and no GPU is claimed."""
    audit = audit_of("x")
    setting = dataclasses.replace(
        audit.findings[0].finding, rule="PTO016", name="debugging-left-on", symbol="trainer.detect_anomaly", impact=()
    )  # fmt: skip
    other = dataclasses.replace(setting, symbol="trainer.profiler")

    def rendered(finding: Finding) -> str:
        shown = dataclasses.replace(audit, gaps=(), findings=(Weighed(finding, Level.LOW, "seldom"),))
        return " ".join(render(form, shown).replace("\\", "").split())

    assert "Expected: no figure for a GPU; 6.6–6.7× faster on the forward and backward pass" in rendered(
        setting
    )
    assert "Expected: no published figure" in rendered(other)


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_places_in_a_notebook_are_those_of_its_cells(form: str) -> None:
    """The lines of the file are those of its JSON."""
    audit = audit_of("a.ipynb")
    shown = dataclasses.replace(audit, cells={"a.ipynb": {1: (2, 1), 2: (2, 2), 3: (4, 7)}})
    text = " ".join(render(form, shown, width=300).replace("&#8203;", "").split())
    assert "a.ipynb:cell 4:7" in text and "a.ipynb:cell 2:1-2" in text
    assert "a.ipynb:3" not in text and "a.ipynb:1" not in text
    assert "a.ipynb:3" in render(form, audit, width=300).replace("&#8203;", "")


@pytest.mark.parametrize("folders", [1, 9])
def test_only_a_path_longer_than_a_line_makes_it_longer(folders: int) -> None:
    """Places stay in one piece, so that they can be followed: on a line of their own where a column is too narrow."""
    path = f"{'folder_of_models/' * folders}a_module_with_a_long_name.ipynb"
    audit = audit_of(path)
    shown = dataclasses.replace(audit, cells={path: {number: (12, 100 + number) for number in range(1, 200)}})
    lines = render("terminal", shown, width=80).splitlines()
    assert sum(f"{path}:cell 12:1" in line for line in lines) > 3
    wide = [line for line in lines if len(line) > 80]
    assert bool(wide) is (len(path) > 80) and all(path in line for line in wide)
    assert not any(line.endswith(f"{path}:cell") for line in lines)


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_script_is_not_named_twice(form: str) -> None:
    audit = audit_of("plain")
    entry = audit.entries[0]
    alone = dataclasses.replace(audit, entries=(entry,))
    assert f"training at line {entry.loop.line}, " in render(form, alone, width=120)
    both = dataclasses.replace(audit, entries=(entry, dataclasses.replace(entry, path="other")))
    assert f"training at {entry.loop}, " in render(form, both, width=120).replace("&#8203;", "")


def test_paths_of_the_table_stay_in_one_piece() -> None:
    audit = audit_of("plain")
    place = Place("a_package_with_a_long_name/a_module_with_a_name_as_long.py", 1104)
    entry = audit.entries[0]
    rows = tuple(dataclasses.replace(row, evidence=(place,)) for row in entry.measures)
    shown = render(
        "terminal", dataclasses.replace(audit, entries=(dataclasses.replace(entry, measures=rows),)), width=80
    )
    assert shown.count(f"{place}\n") >= len(rows)


@pytest.mark.parametrize("width", [40, 80])
def test_the_terminal_names_the_lines_that_decide_a_row(width: int) -> None:
    """The last ones, too, and how many more there are where scripts share a table."""
    entry = audit_of("plain").entries[0]
    for number, more in ((3, ""), (4, ""), (6, " and 2 more")):
        evidence = tuple(Place("t.py", line) for line in (7, *range(7, 7 + number)))
        row = dataclasses.replace(entry.measures[0], detail="said", evidence=evidence)
        audit = dataclasses.replace(audit_of("plain"), entries=(dataclasses.replace(entry, measures=(row,)),))
        shown = " ".join(render("terminal", audit, width=width).split())
        named = ", ".join(map(str, dict.fromkeys(evidence[:5])))
        assert f"said {named}{more} " in shown


def test_a_wide_terminal_makes_no_longer_lines() -> None:
    words = "plain words of a row that take more than one line"
    lines = render("terminal", audit_of(words), width=200).splitlines()
    assert 90 < max(map(len, lines)) <= 100
    assert lines == render("terminal", audit_of(words), width=100).splitlines()


def test_in_few_columns_a_row_stands_above_what_is_said_of_it() -> None:
    words = "plain words of a row that take more than one line"
    shown = render("terminal", audit_of(words), width=40)
    assert re.search(
        r"  Mixed precision +on\n {6}plain words of a row that take\n {6}more than one line", shown
    )
    # Here the paths consist of these words, too, and they stay in one piece.
    assert all(len(line) <= 40 for line in shown.splitlines() if words not in line)


@pytest.mark.parametrize("format_", ["terminal", "markdown"])
def test_the_command_that_lists_the_other_findings_lists_them(format_: str) -> None:
    audit = audit_of("train.py")
    low = next(weighed for weighed in audit.findings if weighed.level is Level.LOW)
    many = [
        dataclasses.replace(low, finding=dataclasses.replace(low.finding, confidence=0.9 - n / 25))
        for n in range(22)
    ]
    text = " ".join(render(format_, dataclasses.replace(audit, findings=tuple(many))).split())
    assert "`ptopt check --min-confidence 0.06`" in text
