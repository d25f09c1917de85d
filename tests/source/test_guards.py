"""Conditions around a place: each case marks one line with `#?`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.frequency import Often
from ptopt.source.work import limited


def _marked(code: str) -> tuple[SourceFile, ast.Call]:
    text = "import torch\n" + textwrap.dedent(code)
    file = SourceFile.parse("f.py", text.encode())
    line = next(i for i, t in enumerate(text.split("\n"), 1) if "#?" in t)
    return file, next(c for c in file.index.of_type(ast.Call) if c.lineno == line)


FIRST_CALL_ONLY = {
    "missing attribute": """
        def forward(self, x):
            if self.table is None:
                self.table = make(x)  #?
        """,
    "a flag that is set further down": """
        def sample(self, x):
            if not self.ready:
                make(x)  #?
            out = self.run(x)
            self.ready = True
            return out
        """,
    "a value that the caller keeps": """
        def table(n, made=None):
            if made is None or made.size(0) != n:
                made = make(n)  #?
            return made
        """,
    "the first time step": """
        def forward(self, x, t):
            if t == 0:
                make(x)  #?
        """,
    "missing attribute, without `is`": """
        def forward(self, x):
            if not self.ready:
                make(x)  #?
                self.ready = True
        """,
    "no such attribute": """
        def forward(self, x):
            if not hasattr(self, "table"):
                self.table = make(x)  #?
        """,
    "getattr": """
        def forward(self, x):
            if getattr(self, "table", None) is None:
                self.table = make(x)  #?
        """,
    "too short": """
        def forward(self, x):
            if self.table is None or self.table.size(0) < x.size(1):
                self.table = make(x)  #?
        """,
    "a buffer": """
        def forward(self, x):
            if x.size(1) > self.length:
                self.register_buffer("table", make(x))  #?
                self.length = x.size(1)
        """,
    "a dictionary": """
        def table(n, cache):
            if n not in cache:
                cache[n] = make(n)  #?
        """,
    "optimizer state": """
        def step(self):
            for p in params:
                state = self.state[p]
                if len(state) == 0:
                    state["mean"] = make(p)  #?
        """,
    "early exit": """
        def forward(self, x):
            if self.table is not None:
                return self.table
            self.table = make(x)  #?
            return self.table
        """,
    "early exit from a cache": """
        def table(n, cache):
            if n in cache:
                return cache[n]
            found = make(n)  #?
            cache[n] = found
            return found
        """,
    "the other branch": """
        def forward(self, x):
            if self.table is not None:
                pass
            else:
                self.table = make(x)  #?
        """,
}
EACH_TIME = {
    "a default": """
        def forward(self, x, mask=None):
            if mask is None:
                mask = make(x)  #?
        """,
    "a default that may be too short": """
        def forward(self, x, mask=None):
            if mask is None or mask.size(0) != x.size(0):
                mask = make(x)  #?
            return x * mask
        """,
    "a switch that another method sets": """
        def forward(self, x):
            if not self.merged:
                make(x)  #?

        def merge(self):
            self.merged = True
        """,
    "another attribute": """
        def forward(self, x):
            if self.mask is None:
                self.out = make(x)  #?
        """,
    "set, not missing": """
        def forward(self, x):
            if self.total is not None:
                self.total = make(x)  #?
        """,
    "a counter": """
        def step(self):
            if self.steps < self.warmup:
                make(self)  #?
            self.steps += 1
        """,
    "a counter inside": """
        def step(self):
            if self.steps < self.total:
                make(self)  #?
                self.steps += 1
        """,
    "there is something to work on": """
        def forward(self, mask):
            if mask.sum() > 0:
                return make(mask)  #?
        """,
    "either of two": """
        def forward(self, x):
            if self.table is None or x.requires_grad:
                self.table = make(x)  #?
        """,
    "an exit for something else": """
        def forward(self, x):
            if x is None:
                return self.table
            self.table = make(x)  #?
        """,
}


@pytest.mark.parametrize("code", FIRST_CALL_ONLY.values(), ids=FIRST_CALL_ONLY.keys())
def test_what_is_computed_once_and_kept_is_rare(code: str) -> None:
    file, node = _marked(code)
    assert file.guards.rare(node) is not None


def test_a_name_that_a_loop_fills_once() -> None:
    code = """
        def means(errors, batch):
            n = None
            for error in errors:
                {before}
                if n is None:
                    n = make(batch)  #?
                yield error / n
        """
    file, node = _marked(code.format(before="pass"))
    assert file.guards.rare(node, next(file.index.loops_of(node))) is not None
    file, node = _marked(code.format(before="n = None"))
    assert file.guards.rare(node, next(file.index.loops_of(node))) is None


EXCEPTIONS = {
    "nothing to work on": """
        def forward(self, loss, valid):
            return loss / valid.sum() if valid.sum() > 0 else torch.tensor(0.0)  #?
        """,
    "no positives": """
        def forward(self, num_pos):
            if num_pos == 0:
                return torch.tensor(0.0)  #?
        """,
    "now and then, and at the end": """
        def train(self, loss, steps):
            for step in range(steps):
                if step % self.log_freq == 0 or (step + 1 == steps):
                    show(loss.item())  #?
        """,
    "debugging that ends the program": """
        def forward(self, x):
            print(x.norm())  #?
            exit()
        """,
}


@pytest.mark.parametrize("code", EXCEPTIONS.values(), ids=EXCEPTIONS.keys())
def test_what_hardly_ever_runs_is_rare(code: str) -> None:
    text = textwrap.dedent(code).encode()
    file = SourceFile.parse("f.py", text)
    line = next(n for n, line in enumerate(text.decode().splitlines(), 1) if "#?" in line)
    marked = [call for call in file.index.of_type(ast.Call) if call.lineno == line]
    assert file.guards.rare(marked[-1]) is not None


@pytest.mark.parametrize("code", EACH_TIME.values(), ids=EACH_TIME.keys())
def test_what_runs_each_time_is_not(code: str) -> None:
    file, node = _marked(code)
    assert file.guards.rare(node) is None


def test_many_early_exits_cost_in_proportion() -> None:
    def cost(number: int) -> int:
        exits = "".join(f"    if self.a{i} is not None:\n        return self.a{i}\n" for i in range(number))
        file = SourceFile.parse("f.py", f"def f(self, x):\n{exits}    make(x)\n".encode())
        node = file.calls_named("make")[0]
        with limited(10**9) as account:
            assert file.guards.rare(node) is None
        return account.spent

    assert cost(2_000) < 6 * cost(500)


def test_early_exits_of_a_block() -> None:
    file, _ = _marked("""
        def f(x):
            if x is None:
                return
            if x:
                return 1
            else:
                pass
            make(x)  #?
        """)
    function = next(file.index.of_type(ast.FunctionDef))
    assert [e.lineno for e in file.guards.early_exits(function)] == [4]


@pytest.mark.parametrize("decorator", ["@lru_cache(maxsize=None)", "@functools.cache", "@cached_property"])
def test_a_cached_function_runs_once(decorator: str) -> None:
    file, node = _marked(f"""
        class Net(nn.Module):
            {decorator}
            def table(self, n):
                return make(n)  #?

            def forward(self, x):
                return self.table(4)
        """)
    assert file.frequencies.of(node).often == Often.ONCE
