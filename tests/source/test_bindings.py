"""Every place that gives a name a value, collected name by name."""

from __future__ import annotations

from ptopt.source.file import SourceFile

_CODE = """\
x = 0
class Net:
    x = 1
    def run(self, x, *rest):
        a, (x, b) = x
        x: int = 2
        x += 1
        for x in rest:
            with open(x) as x:
                pass
        [x for x in rest]
        (x := 3)
        (x, x), *c = rest
        del x
        def inner():
            x = 4
"""


def test_bindings_of_a_name_are_those_of_its_function_in_source_order() -> None:
    file = SourceFile.parse("a.py", _CODE.encode())
    run, inner = (f for f in file.calls.functions)
    found = [(b.line, b.kind, b.path) for b in file.bindings.of(run, "x")]
    assert found == [
        (4, "parameter", ()),
        (5, "unpack", (1, 0)),
        (6, "assign", ()),
        (7, "augment", ()),
        (8, "item", ()),
        (9, "opaque", ()),
        (11, "item", ()),
        (12, "assign", ()),
        (13, "unpack", (0, 0)),
        (13, "unpack", (0, 1)),
    ]
    assert [b.line for b in file.bindings.of(None, "x")] == [1]
    assert [b.line for b in file.bindings.of(inner, "x")] == [16]
    assert file.bindings.of(run, "rest") == []
    assert [b.kind for b in file.bindings.of(run, "c")] == ["opaque"]
    assert file.bindings.of(run, "x") is file.bindings.of(run, "x")  # they are compared by identity


def test_callers_are_found_by_the_name_that_is_called() -> None:
    code = (
        "def f(): f()\ndef g():\n    f()\n    return f\nclass A:\n"
        "    def m(self): self.m()\n    def n(self): return self.m() + f()\nf()\n"
    )
    file = SourceFile.parse("a.py", code.encode())
    lines = {f.name: [call.lineno for call in file.calls.callers(f)] for f in file.calls.functions}
    assert lines == {"f": [3, 7, 8], "g": [], "m": [7], "n": []}
