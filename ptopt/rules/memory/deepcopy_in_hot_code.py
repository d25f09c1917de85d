from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.source.frequency import Often

_BEST = re.compile(r"config|cfg|best|improv|lowest|ema|average|swa", re.I)
_DATA = re.compile(
    r"batch|sample|item|ann|record|result|data|input|example|tokenizer|processor|target|feature|image|instance|info|msg|message|"
    r"conversation|prompt|sentence|text|label|box|raw|entry|row",
    re.I,
)


class DeepcopyInHotCode(CallRule):
    """A batch, a sample or a tokenizer is deep-copied in code that runs often.

    ## What it does
    Finds `copy.deepcopy(x)` for each sample, batch or step.

    ## Why it is slow
    `deepcopy` walks over every Python object below x with an interpreter-level memo and copies every tensor and array. Often only
    one level is changed afterwards, for which a shallow copy or a rebuilt entry is enough.

    ## Fix safety
    There is no fix: what is changed later must be seen.

    ## Sources
    - [copy: shallow and deep copy operations](https://docs.python.org/3/library/copy.html)
    """

    id = "PTO824"
    name = "deepcopy-in-hot-code"
    family = "memory"
    most_stated = 0.4
    functions = frozenset({"copy.deepcopy"})
    at_least = Often.UNKNOWN
    when_wrong = "the nested contents are changed in place afterwards"

    VALID = (
        """
        import copy
        class Encoder(nn.Module):
            def __init__(self, layer, n):
                self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(n)])
        """,
        """
        import copy
        for epoch in range(epochs):
            if loss < best:
                best_state = copy.deepcopy(model.state_dict())
        """,
        """
        import copy
        teacher = copy.deepcopy(student)
        """,
        """
        import copy
        import torch
        class RandomCrop(object):
            def __call__(self, clip, targets):
                orig_targets = copy.deepcopy(targets)
                clip, targets = crop(clip, targets)
                return clip, targets, orig_targets
        """,
        """
        import copy
        import torch
        class Text(torch.utils.data.Dataset):
            def __getitem__(self, i):
                input_ids = self.tokens[i]
                labels = copy.deepcopy(input_ids)
                for label, start in zip(labels, self.starts):
                    label[:start] = -100
                return input_ids, labels
        """,
        """
        import copy
        import torch
        for batch in loader:
            tokens = stream(model, copy.deepcopy(batch))
            model(tokens).loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            import copy
            import torch
            class Images(torch.utils.data.Dataset):
                def __getitem__(self, i):
                    sample = copy.deepcopy(self.samples[i])  # !
                    # ~ sample = dict(self.samples[i])
                    return sample
        """),
        Invalid("""
            import copy
            import torch
            for batch in loader:
                inputs = copy.deepcopy(batch)  # !
                model(**inputs).loss.backward()
                optimizer.step()
        """),
        Invalid("""
            import copy
            import torch
            def add_tokens(self, tokenizer, names):
                own = copy.deepcopy(tokenizer)  # !
                own.add_tokens(names)
                return own
        """),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        node, file = call.node, call.file
        function = file.index.function_of(node)
        if not node.args or (function is not None and function.name == "__init__"):
            return
        text = file.source(node.args[0])
        if call.frequency.often < (Often.EVALUATION if "tokenizer" not in text else Often.UNKNOWN):
            return
        statement = file.source(file.index.statement_of(node)).partition("\n")[0]
        if _BEST.search(statement) or not _DATA.search(text) or text.endswith("state_dict()"):
            return
        if isinstance(node.args[0], (ast.Dict, ast.List, ast.Constant)) or any(
            isinstance(a, ast.If) for a, _ in file.index.ancestors(node)
        ):
            return
        if _nested_may_change(node, file):
            return
        yield Problem(
            node,
            f"{quote(file, node, 45)} copies everything below it object by object, tensors and arrays included, "
            f"{call.frequency.reason or 'on each call'}. A shallow copy (`dict(…)`, `copy.copy(…)`) and new values for what changes are enough "
            "unless nested contents are changed in place.",
            0.4,
            call.evidence,
            cause=call.cause,
            subject=node.args[0],
            facts={"sample": call.frequency.in_worker, "tensor": file.values.is_tensor(node.args[0])},
        )


def _nested_may_change(copied: ast.Call, file: SourceFile) -> bool:
    """Do the function, or what it hands the copy or the original to, change what lies below the first level?"""
    parent = file.index.parent(copied)
    if isinstance(parent, ast.Call):
        return True  # handed to somebody at once
    function = file.index.function_of(copied)
    names = {t.id for t in getattr(parent, "targets", ()) if isinstance(t, ast.Name)}
    if isinstance(copied.args[0], ast.Name):
        names.add(copied.args[0].id)
    return any(
        load.lineno > copied.lineno and _reaches_below(load, file)
        for name in names
        for load in file.uses.loads(function, name)
    )


def _reaches_below(use: ast.expr, file: SourceFile) -> bool:
    """`f(x)`, `for a in x`, `x[0].append(1)`, `x[0][1] = 2`"""
    parent = file.index.parent(use)
    if isinstance(parent, (ast.For, ast.comprehension)):
        return use is parent.iter
    if isinstance(parent, ast.Call):
        return use in parent.args
    if not isinstance(parent, ast.Subscript) or use is not parent.value:
        return False
    outer = file.index.parent(parent)
    if isinstance(outer, ast.AugAssign):
        return outer.target is parent
    if isinstance(outer, ast.Subscript) and isinstance(outer.ctx, (ast.Store, ast.Del)):
        return outer.value is parent
    return (
        isinstance(outer, ast.Attribute)
        and isinstance(file.index.parent(outer), ast.Call)
        and outer.attr in ("append", "extend", "insert", "pop", "remove", "update", "clear", "sort")
    )
