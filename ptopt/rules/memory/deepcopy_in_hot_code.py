from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, quote
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

    ## When this is wrong
    When the nested contents are changed in place afterwards.

    ## Example
    ```python
    def __getitem__(self, i):
        sample = copy.deepcopy(self.samples[i])
        sample["image"] = self.load(sample["path"])
        return sample
    ```

    ## Use instead
    ```python
    def __getitem__(self, i):
        sample = dict(self.samples[i])
        sample["image"] = self.load(sample["path"])
        return sample
    ```

    ## Fix safety
    There is no fix: what is changed later must be seen.

    ## Sources
    - [copy: shallow and deep copy operations](https://docs.python.org/3/library/copy.html)
    """

    id = "PTO824"
    name = "deepcopy-in-hot-code"
    family = "memory"
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
    )
    INVALID = (
        Invalid(
            """
            import copy
            import torch
            class Images(torch.utils.data.Dataset):
                def __getitem__(self, i):
                    sample = copy.deepcopy(self.samples[i])  # !
                    return sample
            """
        ),
        Invalid(
            """
            import copy
            import torch
            for batch in loader:
                inputs = copy.deepcopy(batch)  # !
                model(**inputs).loss.backward()
                optimizer.step()
            """
        ),
        Invalid(
            """
            import copy
            import torch
            def add_tokens(self, tokenizer, names):
                own = copy.deepcopy(tokenizer)  # !
                own.add_tokens(names)
                return own
            """
        ),
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
