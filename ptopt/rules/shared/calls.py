"""The commonest shape of a rule: a call by qualified name, or a method of a tensor, in a place that runs often."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ptopt.rules.base import Evidence, Problem, Rule, SourceFile
from ptopt.rules.shared.places import frequency_evidence
from ptopt.source.frequency import Frequency, Often


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call of a library function or of a method, and where it stands."""

    node: ast.Call
    file: SourceFile
    name: str  # qualified ("torch.nn.functional.softmax"), or "tensor.softmax" for a method
    frequency: Frequency
    subject: ast.expr | None  # the receiver of a method, the first argument of a function

    @property
    def cause(self) -> ast.AST | None:
        """What one iteration is: the innermost loop, else the function."""
        return self.file.frequencies.iteration_of(self.node)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The line that shows how often the call runs, where it is not the call's own."""
        line = self.frequency.line
        if not line or line == self.node.lineno:
            return ()
        return (frequency_evidence(self.frequency),)


class CallRule(Rule):
    """Base of rules about one call.

    `functions` are qualified names, `methods` names of tensor methods. `check_call` sees each such call that runs at least
    `at_least` often; with `at_least = Often.UNKNOWN`, every one. A method counts when its receiver is a tensor.
    """

    functions: ClassVar[frozenset[str]] = frozenset()
    methods: ClassVar[frozenset[str]] = frozenset()
    at_least: ClassVar[Often] = Often.EVALUATION
    nodes = (ast.Call,)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.calls = frozenset({name.rpartition(".")[2] for name in cls.functions} | cls.methods)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        name = self._name(node, file) if isinstance(node, ast.Call) else ""
        if not name or not isinstance(node, ast.Call):
            return
        frequency = file.frequencies.of(node)
        if frequency.often < self.at_least:
            return
        subject = (
            node.func.value
            if isinstance(node.func, ast.Attribute) and name.startswith("tensor.")
            else node.args[0]
            if node.args
            else None
        )
        yield from self.check_call(ResolvedCall(node, file, name, frequency, subject))

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        """Problems of one call."""
        raise NotImplementedError(f"{type(self).__name__} has no check_call")

    def _name(self, node: ast.Call, file: SourceFile) -> str:
        qualified = file.imports.qualified(node.func)
        if qualified:
            return qualified if qualified in self.functions else ""
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in self.methods:
            return ""
        return f"tensor.{node.func.attr}" if file.values.is_tensor(node.func.value) else ""
