"""Pages for a browser, from `templates/`: every value is escaped, comments are rendered from their Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from fake_github.comments import IssueComment
from fake_github.http import Answer
from fake_github.suggestions import is_suggestion, suggestion_of

if TYPE_CHECKING:
    from fake_github.reviews import ReviewComment

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def page(template: str, status: int = 200, **values: object) -> Answer:
    text = _TEMPLATES.get_template(template).render(**values)
    return Answer(text.encode(), status, media_type="text/html; charset=utf-8")


def _markdown(text: str) -> Markup:
    """As HTML. The HTML in it stays: only programs and people on this machine write to the fake GitHub."""
    return Markup(_MARKDOWN.render(text))


def _body(comment: IssueComment | ReviewComment) -> Markup:
    """The text; the first suggestion as the lines that it takes out and puts in."""
    tokens = _MARKDOWN.parse(comment.body)
    at = next((n for n, each in enumerate(tokens) if is_suggestion(each)), None)
    if at is None or isinstance(comment, IssueComment):
        return _markdown(comment.body)
    env: dict[str, object] = {}
    before, after = (
        Markup(_MARKDOWN.renderer.render(part, _MARKDOWN.options, env))
        for part in (tokens[:at], tokens[at + 1 :])
    )
    lines = [Markup('<span class="old">- {}</span>').format(line) for line in _commented(comment)]
    lines += [
        Markup('<span class="new">+ {}</span>').format(line) for line in tokens[at].content.splitlines()
    ]
    shown = Markup('<p>Suggested change</p><pre class="suggestion" tabindex="0">{}</pre>')
    return before + shown.format(Markup("").join(lines)) + after


def _commented(comment: ReviewComment) -> list[str]:
    """The lines that the comment was made on."""
    where = comment.anchor
    data = comment.pull.repo.file(where.path, where.commit_id)
    if data is None or where.line is None:
        return []
    return data.decode("utf-8", "replace").splitlines()[(where.start_line or where.line) - 1 : where.line]


_TEMPLATES = Environment(
    loader=PackageLoader("fake_github"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(
    markdown=_markdown, body=_body, suggests=lambda comment: suggestion_of(comment.body) is not None
)
