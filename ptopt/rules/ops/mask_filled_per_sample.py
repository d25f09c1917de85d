from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import first_call, quote
from ptopt.rules.ops._calls import names_in
from ptopt.rules.ops._slices import base_of
from ptopt.rules.ops.element_loop import ElementLoop
from ptopt.rules.ops.slice_loop import reported
from ptopt.rules.shared.flow import entries_of
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often

_FILLED = frozenset(
    "zeros ones full empty zeros_like ones_like full_like new_zeros new_ones new_full new_empty".split()
)
_SHORT_BODY = 4
_BY_INDEX = ElementLoop()


class MaskFilledPerSample(Rule):
    """A padded batch or its mask is filled in one row at a time.

    ## What it does
    Finds loops whose body does little else than store into one row of a tensor up to the row's length:
    `mask[i, :n] = 1`, `out[i, : len(s)] = s`.

    ## Why it is slow
    Each row costs an indexing and a copy in Python, and on a GPU a kernel or a transfer of its own. A comparison with the
    lengths, or `pad_sequence`, does all rows at once.

    ## Fix safety
    No fix is offered: the type of the lengths is not known.

    ## Sources
    - [torch.nn.utils.rnn.pad_sequence](https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html)
    """

    id = "PTO420"
    name = "mask-filled-per-sample"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.For,)
    requires = tuple(sorted(_FILLED))
    when_wrong = "there are a few rows"

    VALID = (
        """
        mask = torch.arange(longest) < lengths[:, None]
        """,
        """
        for batch in loader:
            mask = torch.zeros(8)
            mask[:3] = 1
        """,
        """
        def pad_images(images, height, width):
            padded = torch.zeros(len(images), height, width)
            for i, image in enumerate(images):
                padded[i, : image.shape[0], : image.shape[1]] = image
            return padded
        """,
        """
        def pad_spectra(spectra, longest):
            padded = torch.zeros(len(spectra), 80, longest)
            for i, spectrum in enumerate(spectra):
                padded[i, :, : spectrum.shape[1]] = spectrum
            return padded
        """,
    )
    INVALID = (
        Invalid("""
            def padding_mask(lengths):
                mask = torch.zeros(len(lengths), max(lengths))
                for i, n in enumerate(lengths):  # !
                    mask[i, :n] = 1
                return mask
        """),
        Invalid("""
            def pad(sequences, longest):
                padded = sequences[0].new_zeros(len(sequences), longest)
                for i in range(len(sequences)):  # !
                    size = sequences[i].size(0)
                    padded[i][:size] = sequences[i]
                return padded
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or len(node.body) > _SHORT_BODY or node in file.once(reported):
            return
        targets = names_in(node.target)
        stores: list[ast.Assign] = []
        for stmt in node.body:
            if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
                return
            if isinstance(stmt.targets[0], ast.Subscript):
                stores.append(stmt)
        filled = [s for s in stores if _fills_row(s, targets, file)]
        if not filled:
            return
        often = file.frequencies.of(node).often
        if often in (Often.ONCE, Often.RARELY) or any(True for _ in _BY_INDEX.check(node, file)):
            return
        store = filled[0]
        base = base_of(store.targets[0])
        constant = isinstance(store.value, (ast.Constant, ast.UnaryOp)) or (
            isinstance(store.value, ast.Call) and called_name(store.value) in ("float", "int")
        )
        name = quote(file, base, 30).strip("`")
        advice = (
            f"Compare once with the lengths: `{name} = torch.arange({name}.size(-1)) < lengths[:, None]`."
            if constant
            else "Pad all of them at once: `torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)`."
        )
        yield Problem(
            node,
            f"`{name}` is filled row by row: {quote(file, store, 50)} runs once for each sample. {advice}",
            0.4 if constant else 0.35,
            (Evidence(store.lineno, "the store into one row"),),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1)),
            subject=base,
            at=store,
            facts={"mask": constant, "stores": len(filled), "statements": len(node.body)},
        )


def _fills_row(store: ast.Assign, targets: frozenset[str], file: SourceFile) -> bool:
    """Does it store into `x[i, :n]` or `x[i][:n]`, where the loop gives `i`, and `x` was made at full size?"""
    target = store.targets[0]
    entries: list[ast.expr] = []
    while isinstance(target, ast.Subscript):
        entries = [*entries_of(target), *entries]
        target = target.value
    if len(entries) < 2 or not (isinstance(entries[0], ast.Name) and entries[0].id in targets):
        return False
    bounded = [e for e in entries[1:] if isinstance(e, ast.Slice) and (e.lower or e.upper) is not None]
    if not bounded or any(not isinstance(e, ast.Slice) for e in entries[1:]):
        return False
    if len(bounded) > 1 or bounded[0] is not entries[1]:
        return False  # lengths of two dimensions, or of a later one: neither a comparison nor `pad_sequence` does that
    if not isinstance(target, ast.Name):
        return False
    first = file.bindings.first_assigned(file.index.function_of(store), target.id)
    made = first_call(first.value) if first is not None else None
    return isinstance(made, ast.Call) and called_name(made) in _FILLED
