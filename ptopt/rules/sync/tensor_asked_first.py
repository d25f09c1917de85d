from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote, replace_node
from ptopt.rules.shared.places import often_place
from ptopt.rules.sync._reads import wait_facts
from ptopt.source.index import walk
from ptopt.source.options import default_of

_LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)
_NO_STEP = 0.75  # in code that runs often, as far as is known
_LEFT_TO_TENSOR = 0.5  # by default the flag decides nothing


class TensorAskedFirst(Rule):
    """A condition asks a tensor before a flag that may decide it.

    ## What it does
    Finds `and` and `or` in the conditions of `if` and `assert` whose tensor stands before an
    option, in training steps, forward passes, losses and metrics.

    ## Why it is slow
    Python evaluates a condition from left to right, and has to wait for the GPU to know whether the tensor holds. With the
    flag first it waits only where the flag does not decide.

    ## Fix safety
    Safe: the flag is a name or an attribute that does not depend on the tensor, so both orders give the same.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO138"
    name = "tensor-asked-first"
    family = "sync"
    triggers = (" and ", " or ")
    nodes = (ast.If, ast.Assert, ast.IfExp)  # a `while` asks its flag once more, at its end
    when_wrong = "the flag nearly always leaves the decision to the tensor, or the code runs on the CPU"

    VALID = (
        """
        class MaskedLoss(nn.Module):
            def forward(self, scores, labels):
                loss = F.cross_entropy(scores, labels)
                if self.strict and torch.isnan(loss):
                    raise ValueError("loss is nan")
                return loss
        """,
        """
        class MaskedLoss(nn.Module):
            def forward(self, scores, labels):
                loss = F.cross_entropy(scores, labels)
                if torch.isnan(loss) and torch.isnan(scores).any():
                    raise ValueError("loss is nan")
                return loss
        """,
        """
        class MaskedLoss(nn.Module):
            def forward(self, scores, labels, extra):
                if torch.isnan(extra.scores).any() and extra.strict:
                    raise ValueError("nan")
                return F.cross_entropy(scores, labels)
        """,
    )
    INVALID = (
        Invalid("""
            class MaskedLoss(nn.Module):
                def forward(self, scores, labels):
                    loss = F.cross_entropy(scores, labels)
                    if torch.isnan(loss) and self.strict:  # !
                    # + if self.strict and torch.isnan(loss):
                        raise ValueError("loss is nan")
                    return loss
        """),
        Invalid("""
            for step, (x, y) in enumerate(loader):
                loss = F.mse_loss(model(x.to(device)), y.to(device))
                loss.backward()
                optimizer.step()
                if torch.isnan(loss) and DEBUG:  # !
                # + if DEBUG and torch.isnan(loss):
                    report(step)
        """),
        Invalid("""
            class Reducer(nn.Module):
                def forward(self, losses):
                    output = torch.sum(losses) / losses.numel()
                    if torch.isnan(output) and (self.half or self.warns):  # !
                    # + if (self.half or self.warns) and torch.isnan(output):
                        output = torch.zeros_like(output)
                    return output
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        asked = file.index.of_type(*self.nodes)
        return [node for node in asked if isinstance(getattr(node, "test", None), ast.BoolOp)]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        test = getattr(node, "test", None)
        if not isinstance(test, ast.BoolOp) or not has_flag(test, file):
            return  # before what takes the values of the names to tell
        tensor = file.waits.branch_tensor(test)
        if tensor is None:
            return
        swapped = flag_first(test, tensor, file)
        place = often_place(test, file) if swapped is not None else None
        if swapped is None or place is None:
            return
        flag, text, fix = swapped
        default = default_of(flag, file)
        decides = default is not None and default is isinstance(test.op, ast.Or)
        computed = any(
            isinstance(part, ast.Call) for part in walk(tensor)
        )  # a name may hold a number after all
        sure = TEXTBOOK if computed and (decides or place.step is not None) else _NO_STEP
        asked = quote(file, flag)
        yield Problem(
            test,
            f"{quote(file, tensor)} is computed on the device, and asked first: Python waits for the GPU {place.words}, also "
            f"where {asked} decides. Ask {asked} first: `{text}`.",
            sure if default is None or decides else _LEFT_TO_TENSOR,
            place.evidence,
            fix,
            cause=place.node,
            subject=tensor,
            facts=wait_facts(test, place.node, file),
        )


def has_flag(test: ast.BoolOp, file: SourceFile) -> bool:
    """May `flag_first` find a flag, whichever part is the tensor? A quick answer."""
    return any(_is_flag(value, set(), file) for value in test.values[1:])


def flag_first(test: ast.BoolOp, tensor: ast.expr, file: SourceFile) -> tuple[ast.expr, str, Fix] | None:
    """The flag that stands behind the tensor, the condition with the flag first, and a fix that writes it; None without one.

    A flag is the truth of an option, or its comparison with a constant: an attribute of `self`, a parameter or a constant of the
    module. The tests before it do not guard it.
    """
    if test.lineno != test.end_lineno:
        return None
    first = next((n for n, value in enumerate(test.values) if file.index.within(tensor, value)), None)
    if first is None:
        return None
    before, behind = test.values[:first], test.values[first:]
    asked = {ast.unparse(node) for value in (*before, behind[0]) for node in walk(value) if _is_name(node)}
    flags = [value for value in behind[1:] if _is_flag(value, asked, file)]
    if not flags:
        return None
    ordered = [*before, *flags, *(value for value in behind if value not in flags)]
    joint = " and " if isinstance(test.op, ast.And) else " or "
    text = joint.join(_as_part(value, file) for value in ordered)
    return flags[0], text, Fix(Safety.SAFE, (replace_node(file, test, text),))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _is_flag(value: ast.expr, asked: set[str], file: SourceFile) -> bool:
    """Cheap, on the host, and about something that was not asked before: `x.any() and x.flag` may need its order."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_flag(value.operand, asked, file)
    if isinstance(value, ast.BoolOp):
        return all(_is_flag(part, asked, file) for part in value.values)
    if isinstance(value, ast.Compare):
        constants = [c.value for c in value.comparators if isinstance(c, ast.Constant)]
        not_number = all(c is None or isinstance(c, (str, bool)) for c in constants)
        all_constant = len(constants) == len(value.comparators)
        return (
            all_constant and _is_option(value.left, not_number, file) and ast.unparse(value.left) not in asked
        )
    return _is_option(value, False, file) and ast.unparse(value) not in asked


def _is_option(node: ast.expr, not_number: bool, file: SourceFile) -> bool:
    """Not a tensor: of a parameter its default says so, or, where `not_number`, what it is compared with: text, a bool or None."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "self"
    if not isinstance(node, ast.Name):
        return False
    function = file.index.function_of(node)
    if function is None or node.id.isupper():
        return node.id.isupper()
    given = function.args
    positional = given.args[len(given.args) - len(given.defaults) :]
    defaults = dict(zip([a.arg for a in positional], given.defaults, strict=True))
    defaults |= {a.arg: d for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d is not None}
    known = isinstance(defaults.get(node.id), ast.Constant)
    return known or (not_number and any(a.arg == node.id for a in (*given.args, *given.kwonlyargs)))


def _as_part(value: ast.expr, file: SourceFile) -> str:
    text = file.source(value)
    return f"({text})" if isinstance(value, _LOOSE) else text
