"""How sequences of different lengths become a batch: padding and packing."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from enum import Enum, auto

from ptopt.audit.arguments import Source, TrainerArguments, keyword_value
from ptopt.audit.calling import callers, lineage
from ptopt.audit.known import Value
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.setup import MOST_ASKED, Setup, open_condition
from ptopt.audit.values import Measure, Place, State
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode

_PADS = re.compile(r"pad[^\]\n]*\]\s*\*")
_PACKS = re.compile(
    r"^(ConstantLength|Packed|Packing|SequencePack)\w*(Data(set|loader|Loader)|Collator|Sampler)$"
)
_OF_BATCHES = re.compile(r"collat|batch|(^| )(forward|__call__|__iter__|\w*_step|loss|compute_loss)$", re.I)
_TOKENISES = re.compile(r"tokeni[sz]e\w*$|tokeni[sz]er (__call__|encode\w*)$", re.I)
TOKENS = re.compile(r"\((\d+) tokens\)")  # how the row says to how many is padded
_PADDING = (
    "padding",
    "pad_to_max_length",
    "packing",
    "group_by_length",
    "sample_packing",
    "train_sampling_strategy",
)
_KEYWORDS = frozenset({*_PADDING, "collate_fn"})
_OF_CLIP = ("clip.tokenize", "clip.clip.tokenize", "open_clip.tokenize")
_LAYER = re.compile(r"Conv|Pool|Unfold|conv\dd|^nn\.|Linear|stft")
ONE_LENGTH = "texts are brought to the one length that the text encoder of CLIP takes"
# How texts are joined, which a batch of them is not: `sum(examples[k], [])`, `list(chain(*examples[k]))`.
_JOINS = re.compile(r"\bsum\([^\n]*, \[\]\)|\bchain(\.from_iterable)?\(|\bconcatenate\(")
_CUTS = re.compile(r"\brange\(")
_OF_TOKENS = re.compile(
    r"input_ids|token_?ids|\btokens\b", re.I
)  # a list of other items that grows is cut into batches
_TRAINERS = re.compile(r"Trainer$")
TO_LONGEST = (
    "batches are padded to their longest"  # a row that is off says so of what the advice need not ask for
)
_LISTED = 4  # places of a row
_TEXT = re.compile(r"token|text|seq|len|mel|wav|audio|spec|input_ids|word|char", re.I)


def padding(setup: Setup) -> Measure:
    key, title = "padding", "Padding and packing"
    if setup.framework == "TRL":
        found = _of_trl(setup)
        if found is not None:
            return found
    doubted: dict[Place, str] = {}  # places that may not run, each with its `open_condition`
    keywords = _padding_keywords(setup)
    packed = _with_those_that_run(
        setup, [*_packers(setup), *_cut_into_blocks(setup, doubted)], keywords[_Batches.PACKED], doubted
    )
    if packed:
        return _decided(State.ON, "sequences are packed or grouped by length", packed, doubted)
    fixed = _with_those_that_run(setup, _filled_up(setup), keywords[_Batches.FIXED], doubted)
    if not doubted.keys() >= {*fixed}:  # one of them surely runs
        return _decided(State.OFF, _to_maximum(setup, fixed, keywords), fixed, doubted)
    dynamic = _with_those_that_run(setup, [], keywords[_Batches.LONGEST], doubted)
    collators = setup.calls("DataCollatorWithPadding", "DataCollatorForSeq2Seq")
    padded = setup.calls("pad_sequence")
    of_a_batch = [pair for pair in padded if _pads_a_batch(setup, *pair)]
    dynamic += [setup.place(m, c) for m, c in [*of_a_batch, *collators]]
    collated = {} if fixed else _collated(setup)
    if padded and not of_a_batch:
        collated.setdefault(None, []).extend(setup.place(m, c) for m, c in padded)
    dynamic += collated.get(True, [])
    fixed += [] if dynamic else collated.get(False, [])
    own = [] if dynamic else _tokenised(setup)
    if own and doubted.keys() >= {*fixed}:
        return _decided(State.OFF, "sequences are padded to a fixed length", own, doubted)
    if fixed:
        return _decided(State.OFF, _to_maximum(setup, fixed, keywords), fixed, doubted)
    if dynamic:
        return _decided(State.ON, "batches are padded to their longest sequence", dynamic, doubted)
    if None in collated:
        detail = "whether a batch is padded to its longest sequence or to a fixed length was not found"
        return Measure(key, title, State.UNKNOWN, detail, tuple(collated[None])[:_LISTED])
    text = any(
        "Tokenizer" in text_of(c.func) and setup.runs(m, c).truth is not False
        for m, c in setup.calls("from_pretrained")
    )
    if not text and (clip := _for_clip(setup)):
        return Measure(key, title, State.NOT_APPLICABLE, ONE_LENGTH, tuple(clip)[:_LISTED])
    if text or setup.framework in ("transformers", "TRL"):
        return Measure(
            key, title, State.UNKNOWN, "text is tokenised; how it is padded was not found", setup.where()
        )
    if setup.missing:
        return Measure(key, title, State.UNKNOWN, f"no tokenised text seen; {setup.missing}")
    return setup.not_applicable(key, title, "no tokenised text seen")


def _of_trl(setup: Setup) -> Measure | None:
    """What TRL does with the sequences; None where the script decides it.

    Only its trainer of supervised fine-tuning packs. The others pad each batch to its longest sequence.
    """
    key, title = "padding", "Padding and packing"
    arguments = TrainerArguments(setup)
    trainers = setup.calls("SFTTrainer")
    if not trainers and not arguments.sources:
        return Measure(key, title, State.UNKNOWN, f"`packing`: {arguments.of('packing').note}")
    if trainers or any(_is_of_sft(setup, source) for source in arguments.sources):
        # Until trl 0.13 the trainer itself had the argument, too.
        value = keyword_value(setup, trainers, "packing", arguments.of("packing"))
        if not value.known and not trainers:
            value = arguments.of("packing")
        if not value.known:
            return Measure(key, title, State.UNKNOWN, f"`packing`: {value.note}", _place(value))
        if value.value:
            return Measure(key, title, State.ON, f"`packing`{_note(value)}", _place(value))
        return Measure(key, title, State.OFF, f"`packing` is off{_note(value)}: {TO_LONGEST}", _place(value))
    if setup.live.calls_spelled("DataCollatorWithPadding") or any(
        keyword.arg == "data_collator" for _, call in setup.named(_TRAINERS) for keyword in call.keywords
    ):
        return None
    return Measure(key, title, State.ON, f"{TO_LONGEST} sequence by TRL", setup.where())


def _is_of_sft(setup: Setup, source: Source) -> bool:
    bases = (
        [dotted_name(base) for _, cls in lineage(setup.live, *source.cls) for base in cls.bases]
        if source.cls is not None
        else []
    )
    return any("SFT" in name.rpartition(".")[2] for name in (source.name, *bases))


class _Batches(Enum):
    """How the batches are made, by a keyword."""

    PACKED = auto()
    FIXED = auto()
    LONGEST = auto()


def _to_maximum(
    setup: Setup, fixed: list[Place], keywords: Mapping[_Batches, list[tuple[Module, ast.keyword]]]
) -> str:
    beside = {setup.place(m, keyword.value): (m, keyword) for m, keyword in keywords[_Batches.FIXED]}
    lengths = []
    for place in fixed:
        length = _length(setup, *beside[place]) if place in beside else None
        if length is None:  # it is a costly question: the others would not be shown
            return "sequences are padded to the maximum length"
        lengths.append(length)
    return f"sequences are padded to the maximum length ({max(lengths)} tokens)"


def _length(setup: Setup, module: Module, padding: ast.keyword) -> int | None:
    """`max_length` beside `padding="max_length"`, where it is known."""
    call = module.file.index.parent(padding)
    given = setup.keyword(call, "max_length") if isinstance(call, ast.Call) else None
    value = None if given is None else setup.value(module, given)
    return value.value if value is not None and value.known and type(value.value) is int else None


def _padding_keywords(setup: Setup) -> dict[_Batches, list[tuple[Module, ast.keyword]]]:
    """The keywords that decide how batches are made; most do not, such as `padding=1` of a layer."""
    found: dict[_Batches, list[tuple[Module, ast.keyword]]] = {batches: [] for batches in _Batches}
    for module, keyword in _keywords(setup, _PADDING):
        name, value = keyword.arg, setup.value(module, keyword.value)
        if name in ("packing", "group_by_length", "sample_packing") and value.truth:
            found[_Batches.PACKED].append((module, keyword))
        elif name == "train_sampling_strategy":  # of transformers 5
            grouped = value.value in ("group_by_length", "batch_rebalance")
            found[_Batches.PACKED] += [(module, keyword)] if grouped else []
        elif (value.known and value.value in ("max_length",)) or (
            name == "pad_to_max_length" and value.truth
        ):
            found[_Batches.FIXED].append((module, keyword))
        elif name == "padding" and value.known and (value.value is True or value.value == "longest"):
            found[_Batches.LONGEST].append((module, keyword))
    return found


def _with_those_that_run(
    setup: Setup, found: list[Place], keywords: list[tuple[Module, ast.keyword]], doubted: dict[Place, str]
) -> list[Place]:
    """The places with those of the keywords that may run, as many as are needed: whether they do is a costly question."""
    sure = sum(place not in doubted for place in found)
    for asked, (module, keyword) in enumerate(keywords):
        if sure >= _LISTED or (sure and asked >= MOST_ASKED):
            break
        runs = setup.runs(module, keyword)
        if runs.truth is False:
            continue
        place = setup.place(module, keyword.value)
        if runs.truth is None:
            doubted[place] = open_condition(runs)
        else:
            sure += 1
        found.append(place)
    return found


def _decided(state: State, detail: str, places: list[Place], doubted: Mapping[Place, str]) -> Measure:
    """What the places say; unknown where none of them surely runs."""
    sure = [place for place in places if place not in doubted]
    if not sure:
        state, detail = State.UNKNOWN, f"{detail}{doubted[places[0]]}"
    return Measure("padding", "Padding and packing", state, detail, tuple(sure or places)[:_LISTED])


def _pads_a_batch(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Does the function, or one that calls it, make or use a batch? A data set can be padded whole before it is cut into batches."""
    function = setup.live.outermost(module, call)
    if function is None:
        return False
    around = [
        (other, outer)
        for other, site, _ in callers(setup.live, function, module)
        if (outer := setup.live.outermost(other, site)) is not None
    ]
    passed = setup.once(_collators)

    def makes(holder: Module, each: FunctionNode) -> bool:
        named = _OF_BATCHES.search(_full_name(holder, each))
        return each.name in passed or bool(named or holder.file.context.trains(each))

    return any(makes(holder, each) for holder, each in [(module, function), *around])


def _tokenised(setup: Setup) -> list[Place]:
    """`def tokenize(texts, context_length)`: an array of the full length is made for each text."""
    return [
        setup.place(module, function)
        for function, module in setup.live.functions.items()
        if _TOKENISES.search(_full_name(module, function))
        and re.search(
            r"(zeros|full)\([^\n]*(context_length|max_?len|max_length|max_txt)", module.file.source(function)
        )
        and setup.runs(module, function.body[0]).truth is not False
    ]


def _for_clip(setup: Setup) -> list[Place]:
    """`clip.tokenize(texts)`: it gives each text the length of the position embedding, which is added as a whole."""
    return [
        setup.place(module, call)
        for module, call in setup.calls("tokenize")
        if setup.qualified(module, call.func) in _OF_CLIP
        and setup.is_external(module, call.func)
        and setup.runs(module, call).truth is not False
    ]


def _full_name(module: Module, function: FunctionNode) -> str:
    """`Tokenizer encode`, of a method."""
    cls = module.file.index.class_of(function)
    return function.name if cls is None else f"{cls.name} {function.name}"


def _filled_up(setup: Setup) -> list[Place]:
    """`ids += [pad_id] * (max_len - len(ids))`"""
    found = []
    for module in setup.live.read.values():
        for node in module.file.index.of_type(ast.BinOp) if module.file.search(_PADS) else ():
            if not (isinstance(node.left, ast.List) and "pad" in text_of(node.left)):
                continue
            if not re.search(r"max_?(seq_?)?len", text_of(node.right)):
                continue
            if setup.live.runs(module, node) and setup.runs(module, node).truth is not False:
                found.append(setup.place(module, node))
    return found


def _collated(setup: Setup) -> dict[bool | None, list[Place]]:
    """Collate functions of the repository that make a batch as long as its longest item, by whether they do so by default."""
    found: dict[bool | None, list[Place]] = {}
    passed = setup.once(_collators)
    for function, module in setup.live.functions.items():
        cls = module.file.index.class_of(function)
        name = function.name if cls is None else f"{cls.name} {function.name}"
        collates = "collat" in name.lower() or function.name in passed
        text = module.file.source(function) if collates else ""
        if not (re.search(r"\bmax\(", text) and re.search(r"zero|pad|full\(", text)):
            continue
        if not _is_of_sequences(text) or (cls is not None and _is_replaced(setup, cls, function.name)):
            continue
        longest = [c for c in module.file.calls.calls_in(function) if text_of(c.func).endswith("max")]
        truths = {setup.evaluator.condition(call, module).truth for call in longest} or {True}
        by_default = True if True in truths else None if None in truths else False
        found.setdefault(by_default, []).append(setup.place(module, function))
    return found


def _is_replaced(setup: Setup, cls: ast.ClassDef, name: str) -> bool:
    """Is the class only one that others derive from, all of which have a method of their own of this name?"""
    heirs = []
    for module, node in setup.live.sites.get(cls):
        heir = module.file.index.parent(node)
        if not isinstance(heir, ast.ClassDef):
            return False
        heirs.append(heir)
    used = [heir for heir in heirs if heir in setup.live.classes]
    return bool(used) and all(
        any(isinstance(statement, FUNCTIONS) and statement.name == name for statement in heir.body)
        for heir in used
    )


def _packers(setup: Setup) -> list[Place]:
    """Datasets and the like that say of themselves that they pack sequences: `ConstantLengthDataset(...)`"""
    return [
        setup.place(module, call)
        for module, call in setup.named(_PACKS)
        if setup.runs(module, call).truth is not False
    ]


def _cut_into_blocks(setup: Setup, doubted: dict[Place, str]) -> list[Place]:
    """`group_texts`, as the examples of transformers have it: functions that join tokenised texts and cut blocks of one length."""
    found = []
    for module in setup.live.read.values():
        for function in module.file.once(_that_cut):
            outer = setup.live.outermost(module, function)
            if (outer or function) not in setup.live.functions:
                continue
            runs = setup.runs(module, function.body[0])
            uses = (
                setup.live.sites.get(function)
                if outer is None
                else setup.evaluator.uses_inside(function, outer, module)
            )
            sites = [setup.evaluator.stays_before(node, other) for other, node in uses]
            best = max(sites, key=lambda site: (site.truth is True, site.truth is None), default=runs)
            doubt = next((value for value in (runs, best) if value.truth is None), None)
            if runs.truth is False or best.truth is False:
                continue
            place = setup.place(module, function)
            if doubt is not None:
                doubted[place] = open_condition(doubt)
            found.append(place)
    return found


def _that_cut(file: SourceFile) -> list[FunctionNode]:
    """Functions with `[t[i : i + size] for i in range(0, total, size)]` that join what they cut."""
    if not file.search(_CUTS):
        return []
    return [
        function
        for function in file.index.of_type(ast.FunctionDef, ast.AsyncFunctionDef)
        if _cuts_joined(file, function)
    ]


def _cuts_joined(file: SourceFile, function: FunctionNode) -> bool:
    for call in file.calls.calls_in(function):
        if dotted_name(call.func) != "range" or len(call.args) != 3:
            continue
        step = re.escape(text_of(call.args[2]))
        text = "\n".join(map(text_of, function.body))
        cuts = [*re.finditer(rf"\b(\w+)\[(\w+)\s*:\s*\2 \+ {step}\]", text)]
        cut = {found[1] for found in cuts}
        # What is joined after the cut are the pieces: folds of a data set.
        joined = cuts and _JOINS.search(text, 0, cuts[-1].start())
        if cut and (joined or (_OF_TOKENS.search(text) and any(_grows(text, n) for n in cut))):
            return True
    return False


def _grows(text: str, name: str) -> bool:
    """`ids.extend(found)`, `ids += found`"""
    return re.search(rf"\b{name}(\.extend\(| \+= )", text) is not None


def _is_of_sequences(text: str) -> bool:
    """Not the boxes of an image."""
    return bool(re.search(_TEXT, text.replace("len(", ""))) and not re.search(r"annot|bbox|boxes", text)


def _collators(setup: Setup) -> frozenset[str]:
    """The names of the functions that a loader is given to make its batches."""
    return frozenset(
        text_of(keyword.value).rpartition(".")[2] for _, keyword in _keywords(setup, ("collate_fn",))
    )


def _keywords(setup: Setup, names: tuple[str, ...]) -> list[tuple[Module, ast.keyword]]:
    return [
        (module, keyword)
        for module, _, keywords in setup.live.found(_telling)
        for keyword in keywords
        if keyword.arg in names
    ]


def _telling(module: Module, call: ast.Call) -> list[ast.keyword] | None:
    """The keywords that a measure of padding asks for; None of the layers of torch, which have a padding of their own."""
    found = [keyword for keyword in call.keywords if keyword.arg in _KEYWORDS]
    return found if found and not _LAYER.search(text_of(call.func)) else None


def _place(value: Value) -> tuple[Place, ...]:
    return () if value.place is None else (value.place,)


def _note(value: Value) -> str:
    return f" ({value.note})" if value.note else ""
