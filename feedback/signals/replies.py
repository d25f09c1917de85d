"""What a reply says of a comment, by plain patterns of English. The text is hostile data: it is read, and kept nowhere.

A reply that fits no pattern, or says both yes and no, says nothing: silence is better than a guess.
"""

from __future__ import annotations

import enum
import re

_LONGEST = 4_000  # characters that are read
_SENTENCES = 40
_CODE = re.compile(r"^ {0,3}(?:```|~~~)[^\n]*\n.*?(?:^ {0,3}(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NOISE = re.compile(
    r"<!--.*?(?:-->|\Z)|^[ \t]*>[^\n]*$|`[^`\n]*`|https?://\S+|<[^<>\n]*>", re.MULTILINE | re.DOTALL
)
_SENTENCE = re.compile(r"[^.!?;\n]+[.!?;]*")
_BUT = re.compile(r"\b(?:but|however|though|although)\b")


class Says(str, enum.Enum):
    """What a reply says of the comment that it answers."""

    AGREEMENT = "agreement"
    DISAGREEMENT = "disagreement"
    INTENTIONAL = "intentional"  # true, and wanted so
    QUESTION = "question"
    NOTHING = ""

    def __str__(self) -> str:
        return self.value


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?:{pattern})" for pattern in patterns))


_INTENTIONAL = _any(
    r"\bintentional(?:ly)?\b",
    r"\b(?:on|by) (?:purpose|design)\b",
    r"\bdeliberate(?:ly)?\b",
    r"\b(?:is|was|it's|that's) (?:the )?(?:desired|expected|wanted|intended)\b",
    r"\bas intended\b",
    r"\bwe (?:really |actually |do |still )?(?:need|want|rely on) (?:this|that|it|the)\b",
    r"\b(?:want|need|keep|kept|leave|leaving) (?:it|this|that) (?:like this|like that|this way|that way|as is|as it is)\b",
    r"\b(?:needed|required|necessary) (?:here|for|because|to)\b",
)
_NOT_INTENTIONAL = _any(
    r"\b(?:not|un|\w+n't) ?(?:really |quite )?(?:intentional|intended|deliberate|on purpose|by design|needed|required|necessary)",
    r"\bno longer\b",
)
_DISAGREEMENT = _any(
    r"\bfalse (?:positive|alarm)\b",
    r"\bdisagree\b",
    r"\b(?:do not|don't|can't|cannot) (?:really |quite )?(?:agree|think so|see (?:the|a) (?:point|problem|benefit|gain|need))\b",
    r"\b(?:this|that|it|suggestion|comment|bot|advice|ptopt)(?: is|'s| are)? (?:just |simply |plain |clearly )?"
    r"(?:wrong|incorrect|irrelevant|useless|nonsense|noise|pointless|misleading|unhelpful|nitpicking|a nit)\b",
    r"\b(?:doesn't|does not|don't|won't|wouldn't|will not|would not|can't|cannot) "
    r"(?:apply|matter|help|work|make (?:any |much )?(?:sense|difference)|hold|be (?:faster|correct|worth))\b",
    r"\b(?:would|will|could) (?:break|change the (?:result|results|behaviou?r|semantics)|be (?:wrong|slower|incorrect))\b",
    r"\b(?:not|isn't|aren't|wasn't) (?:really |quite |actually )?(?:true|correct|right|relevant|applicable|useful|helpful|"
    r"an? (?:issue|problem|bottleneck|good idea)|the (?:case|hot path|bottleneck)|worth|performance[- ]critical)\b",
    r"\bno (?:real |measurable )?(?:difference|benefit|gain|bottleneck|speed-?up)\b",
    r"\b(?:won't|will not|not going to|wont) ?(?:fix|change|apply|do)\b",
    r"^(?:no(?! problem| worries)|nope|nah|wrong|incorrect|irrelevant|it is not|it isn't)\b",
    r"[\U0001F44E]",
)
_AGREEMENT = _any(
    r"\b(?:good|great|nice|excellent) (?:catch|point|find|suggestion|idea|spot|call|one|advice)\b",
    r"\b(?:you're|you are|that's|that is|this is|it is|it's|bot is|ptopt is) (?:absolutely |totally |quite |completely )?"
    r"(?:right|correct|true)\b",
    r"\bagreed?\b",
    r"\bmak(?:es?|ing) sense\b",
    r"\b(?:will|i'll|we'll|going to|gonna|let me) (?:fix|change|apply|do|update|adopt|address|use|remove|move)\b",
    r"^(?:\w+ )?(?:fixed|done|applied|changed|updated|addressed|adopted|removed|moved)\b",
    r"\b(?:i|we|i've|we've|i have|we have) (?:fixed|applied|changed|updated|addressed|adopted)\b",
    r"\bfixed (?:in|by|with|it)\b",
    r"\b(?:oops|my bad|didn't know|did not know)\b",
    r"^(?:yes|yep|yeah|yup|sure|ok|okay|lgtm|absolutely|indeed|definitely|right|exactly)\b",
    r"^\+1",
    r"[\U0001F44D\u2705\U0001F389]",
)
_NO_AGREEMENT = _any(
    r"\b(?:no|not|never|hardly|\w+n't) (?:really |quite |such |a |an |very )?(?:good|great|nice|agree|right|correct|true|making sense)\b",
)
_POLITE = re.compile(r"\b(?:thanks|thank you|thx|cheers)\b(?! for nothing)")
_UNSURE = re.compile(r"\b(?:not sure|unsure|doubt|whether|wonder|might|maybe|perhaps)\b|^if\b")
_ASKS = re.compile(r"^(?:why|how come|what (?:is|does|do|about))\b[^.!]*$")


def classify(text: str) -> Says:
    """What the reply says of the comment."""
    sentences = _sentences(text)
    found = {_sentence(sentence) for sentence in sentences}
    # True, and wanted so: whatever politeness goes with it.
    if Says.INTENTIONAL in found:
        return Says.INTENTIONAL
    yes, no = Says.AGREEMENT in found, Says.DISAGREEMENT in found
    if yes or no:
        return Says.NOTHING if yes and no else Says.AGREEMENT if yes else Says.DISAGREEMENT
    if Says.QUESTION in found:
        return Says.QUESTION
    polite = any(_POLITE.search(sentence) and not _UNSURE.search(sentence) for sentence in sentences)
    return Says.AGREEMENT if polite else Says.NOTHING


def _sentences(text: str) -> list[str]:
    """Without quotations, code, links and HTML; in lower case, with plain apostrophes and single spaces."""
    bare = _NOISE.sub(" ", _CODE.sub(" ", text[:_LONGEST])).lower()
    plain = bare.translate({0x2019: "'", 0x2018: "'", 0x201C: " ", 0x201D: " ", 0x2A: " ", 0x5F: " ", 0: " "})
    found = (" ".join(each.split()).lstrip("-,: ") for each in _SENTENCE.findall(plain))
    return [each for each in found if each][:_SENTENCES]


def _sentence(text: str) -> Says:
    """Of its clauses, the last one that says anything decides: "good point, but it would break resuming"."""
    said = [_clause(part.strip(" ,:-")) for part in _BUT.split(text)]
    return next((each for each in reversed(said) if each is not Says.NOTHING), Says.NOTHING)


def _clause(text: str) -> Says:
    if text.endswith("?") or _ASKS.match(text):
        return Says.QUESTION
    if _UNSURE.search(text):
        return Says.NOTHING
    if _INTENTIONAL.search(text) and not _NOT_INTENTIONAL.search(text):
        return Says.INTENTIONAL
    if _DISAGREEMENT.search(text) or _NO_AGREEMENT.search(text):
        return Says.DISAGREEMENT
    return Says.AGREEMENT if _AGREEMENT.search(text) else Says.NOTHING
