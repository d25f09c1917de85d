"""Where am I: each case marks one line with `#?` and says what must be true of it."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile

HEADER = "import torch\nfrom torch import nn\n"


def _marked(code: str) -> tuple[SourceFile, ast.AST]:
    """The file, and the first call on the line that holds `#?`."""
    text = HEADER + textwrap.dedent(code)
    file = SourceFile.parse("f.py", text.encode())
    line = next(i for i, t in enumerate(text.split("\n"), 1) if "#?" in t)
    return file, next(c for c in file.index.of_type(ast.Call) if c.lineno == line)


def _steps(code: str) -> bool:
    file, node = _marked(code)
    step = file.context.training_step(node)
    return step is not None and file.guards.rare(node, step.node) is None


EVERY_STEP = {
    "a method whose own method goes backward through slices of the batch": """
        class Loop:
            def run_loop(self):
                for batch, cond in self.data:
                    self.run_step(batch, cond)

            def run_step(self, batch, cond):
                self.forward_backward(batch, cond)
                self.trainer.optimize(self.opt)
                look(batch)  #?

            def forward_backward(self, batch, cond):
                self.trainer.zero_grad()
                for i in range(0, batch.shape[0], self.size):
                    loss = self.losses(batch[i : i + self.size], cond)
                    self.trainer.backward(loss)
        """,
    "behind a test that all is well": """
        for x in loader:
            loss = model(x)
            if torch.isfinite(loss):
                look(x)  #?
                loss.backward()
        """,
    "plain loop": """
        for x in loader:
            look(x)  #?
            loss(x).backward()
        """,
    "optimizer step only": """
        for x in loader:
            look(x)  #?
            self.optimizer.step()
        """,
    "accelerator": """
        while True:
            look(x)  #?
            accelerator.backward(loss)
        """,
    "a scaler that is called, as in timm": """
        def train_one_epoch(model, loader, optimizer, loss_scaler):
            for x in loader:
                loss = model(x)
                look(x)  #?
                loss_scaler(loss, optimizer, parameters=model.parameters())
        """,
    "lightning manual optimisation": """
        class M(LightningModule):
            def training_step(self, batch, i):
                self.manual_backward(loss)
                look(batch)  #?
        """,
    "lightning hook without backward": """
        class M(LightningModule):
            def training_step(self, batch, i):
                look(batch)  #?
                return self.loss(batch)
        """,
    "through a function of the same file": """
        def update(x):
            loss(x).backward()
            optimizer.step()

        for x in loader:
            update(x)
            look(x)  #?
        """,
    "in that function": """
        def update(x):
            look(x)  #?
            loss(x).backward()
            optimizer.step()

        for x in loader:
            update(x)
        """,
    "in a helper that the loop calls": """
        def accuracy(x):
            return look(x)  #?

        for x in loader:
            accuracy(x)
            loss(x).backward()
        """,
    "in an inner loop of the step": """
        for x in loader:
            for p in model.parameters():
                look(p)  #?
            loss(x).backward()
        """,
    "accumulation is no rare guard": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if (i + 1) % accumulation_steps == 0:
                look(x)  #?
                optimizer.step()
        """,
    "else of a rare guard": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i % 10 == 0:
                pass
            else:
                look(x)  #?
        """,
    "not a guard": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if x is not None:
                look(x)  #?
        """,
    "after a frequent continue": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if x is None:
                continue
            look(x)  #?
        """,
}

NOT_EVERY_STEP = {
    "after a pass over all data": """
        def step(net, train_x, optimizer):
            for i in range(0, train_x.shape[0], 32):
                loss = net(train_x[i : i + 32])
                loss.backward()

        def main(net, train_x, optimizer):
            for epoch in range(9):
                step(net, train_x, optimizer)
                look(train_x)  #?
        """,
    "after slices that step the optimizer each": """
        def step(net, x, optimizer):
            for i in range(0, x.shape[0], 32):
                loss = net(x[i : i + 32])
                loss.backward()
                optimizer.step()

        def main(net, x, optimizer):
            for epoch in range(9):
                step(net, x, optimizer)
                look(x)  #?
        """,
    "numbers that are not finite": """
        for x in loader:
            loss = model(x)
            is_finite = torch.isfinite(loss)
            if not torch.all(is_finite):
                look(x)  #?
            loss.backward()
        """,
    "after the loop": """
        for epoch in range(9):
            for x in loader:
                loss(x).backward()
            look(x)  #?
        """,
    "loop over an epoch function": """
        def train_epoch():
            for x in loader:
                loss(x).backward()

        for epoch in range(9):
            train_epoch()
            look(epoch)  #?
        """,
    "iterable of the loop": """
        for x in look(loader):  #?
            loss(x).backward()
        """,
    "modulo": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i % 100 == 0:
                look(x)  #?
        """,
    "not modulo": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if not i % 100:
                look(x)  #?
        """,
    "modulo and more": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i > 0 and (i + 1) % args.log_every == 0:
                look(x)  #?
        """,
    "first iteration": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i == 0:
                look(x)  #?
        """,
    "last iteration": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i == len(loader) - 1:
                look(x)  #?
        """,
    "rank 0": """
        for x in loader:
            loss(x).backward()
            if dist.get_rank() == 0:
                look(x)  #?
        """,
    "debug flag": """
        for x in loader:
            loss(x).backward()
            if args.debug:
                look(x)  #?
        """,
    "exception handler": """
        for x in loader:
            try:
                loss(x).backward()
            except RuntimeError:
                look(x)  #?
        """,
    "branch that raises": """
        for x in loader:
            loss(x).backward()
            if x.bad:
                look(x)  #?
                raise ValueError
        """,
    "message of an assert": """
        for x in loader:
            assert x.good, look(x)  #?
            loss(x).backward()
        """,
    "after a continue on most steps": """
        for i, x in enumerate(loader):
            loss(x).backward()
            if i % 100 != 0:
                continue
            look(x)  #?
        """,
    "conditional expression": """
        for i, x in enumerate(loader):
            loss(x).backward()
            y = look(x) if i % 100 == 0 else None  #?
        """,
    "validation loop inside the epoch loop": """
        for epoch in range(9):
            for x in loader:
                loss(x).backward()
            for x in val_loader:
                look(x)  #?
        """,
    "helper called behind a guard": """
        def report(x):
            look(x)  #?

        for i, x in enumerate(loader):
            loss(x).backward()
            if i % 100 == 0:
                report(x)
        """,
    "reinforcement learning without training": """
        for i in range(100):
            state = env.step(action)
            look(state)  #?
        """,
    "backward of a custom function": """
        class F(torch.autograd.Function):
            @staticmethod
            def backward(ctx, grad):
                return look(grad)  #?
        """,
}


@pytest.mark.parametrize("code", EVERY_STEP.values(), ids=EVERY_STEP)
def test_runs_on_every_step(code: str) -> None:
    assert _steps(code)


@pytest.mark.parametrize("code", NOT_EVERY_STEP.values(), ids=NOT_EVERY_STEP)
def test_does_not_run_on_every_step(code: str) -> None:
    assert not _steps(code)


def test_a_full_batch_epoch_is_marked_as_such() -> None:
    file, node = _marked(
        """
        for epoch in range(100):
            look(epoch)  #?
            loss(data).backward()
            optimizer.step()
        """
    )
    step = file.context.training_step(node)
    assert step is not None and step.full_batch


GRAD_OFF = {
    "with no_grad": "with torch.no_grad():\n    model(x)  #?\n",
    "with inference_mode": "with torch.inference_mode():\n    model(x)  #?\n",
    "two contexts": "with lock, torch.no_grad():\n    model(x)  #?\n",
    "decorator": "@torch.no_grad()\ndef f(x):\n    model(x)  #?\n",
    "decorator without call": "@torch.inference_mode\ndef f(x):\n    model(x)  #?\n",
    "home-made decorator": "@smart_inference_mode()\ndef f(x):\n    model(x)  #?\n",
    "set_grad_enabled": "with torch.set_grad_enabled(False):\n    model(x)  #?\n",
    "depends on the phase": "with torch.set_grad_enabled(phase == 'train'):\n    model(x)  #?\n",
    "every caller": "def f(x):\n    model(x)  #?\n\nwith torch.no_grad():\n    f(1)\n",
    "callers of callers": "def f(x):\n    model(x)  #?\n\ndef g(x):\n    f(x)\n\n@torch.no_grad()\ndef h(x):\n    g(x)\n",
    "switched off for the file": "torch.set_grad_enabled(False)\n\ndef f(x):\n    model(x)  #?\n",
    "nested function": "@torch.no_grad()\ndef f(x):\n    def g(y):\n        model(y)  #?\n    return g(x)\n",
    "lightning hook": "class M:\n    def validation_step(self, batch, i):\n        model(batch)  #?\n",
}

GRAD_ON = {
    "plain": "def f(x):\n    model(x)  #?\n",
    "one caller of two": "def f(x):\n    model(x)  #?\n\nwith torch.no_grad():\n    f(1)\nf(2)\n",
    "beside the block": "with torch.no_grad():\n    pass\nmodel(x)  #?\n",
    "enabled again": "with torch.set_grad_enabled(True):\n    model(x)  #?\n",
    "the context itself": "with torch.no_grad(), open(look(1)) as f:  #?\n    pass\n",
    "recursion": "def f(x):\n    model(x)  #?\n    f(x)\n",
}


@pytest.mark.parametrize("code", GRAD_OFF.values(), ids=GRAD_OFF)
def test_autograd_is_off(code: str) -> None:
    file, node = _marked(code)
    assert file.context.grad_off(node)


@pytest.mark.parametrize("code", GRAD_ON.values(), ids=GRAD_ON)
def test_autograd_is_on(code: str) -> None:
    file, node = _marked(code)
    assert not file.context.grad_off(node)


def test_forward_and_what_it_calls() -> None:
    file, node = _marked(
        """
        class Block(nn.Module):
            def forward(self, x):
                return self._mix(x)

            def _mix(self, x):
                return look(x)  #?

            def export(self, x):
                return look(x)
        """
    )
    forward = file.context.forward_of(node)
    assert forward is not None and forward.name == "forward"
    others = [c for c in file.index.of_type(ast.Call) if c.lineno == 12]
    assert others and all(file.context.forward_of(c) is None for c in others)


@pytest.mark.parametrize(
    "code",
    [
        "class D(Dataset):\n    def __getitem__(self, i):\n        return look(i)  #?\n",
        "def my_collate(batch):\n    return look(batch)  #?\n",
        "def join(batch):\n    return look(batch)  #?\n\nDataLoader(d, collate_fn=join)\n",
    ],
)
def test_item_code(code: str) -> None:
    file, node = _marked(code)
    assert file.context.is_item_code(node) is not None


@pytest.mark.parametrize(
    ("code", "dead"),
    [
        ("if False:\n    look(x)  #?", True),
        ("for x in xs:\n    continue\n    look(x)  #?", True),
        ("def f():\n    return 1\n    if a:\n        look(x)  #?", True),
        ("def f():\n    if a:\n        return 1\n    look(x)  #?", False),
        ("if False:\n    pass\nelse:\n    look(x)  #?", False),
        ("if DEBUG:\n    look(x)  #?", False),
    ],
)
def test_dead_code(code: str, dead: bool) -> None:
    file, node = _marked(code)
    assert file.guards.unreachable(node) is dead


@pytest.mark.parametrize(
    ("code", "fallback"),
    [
        ("def f(x):\n    if x.is_cuda:\n        return look(x)  #?", True),
        ("def f(x):\n    return look(x) if x.device.type == 'mps' else x  #?", True),
        ("def f(x):\n    if use_cuda:\n        return look(x)  #?", False),
        ("def f(x):\n    if look(x).is_cuda:  #?\n        pass", False),
    ],
)
def test_ways_around_what_a_device_cannot_do(code: str, fallback: bool) -> None:
    file, node = _marked(code)
    assert file.guards.device_fallback(node) is fallback


VOLATILE = "def evaluate(x):\n    look(Variable(x, volatile=True))  #?\n"


@pytest.mark.parametrize(
    ("code", "off"),
    [
        (VOLATILE, True),
        ("look(Variable(x, volatile=True))  #?", True),
        (VOLATILE + "\nwith torch.no_grad():\n    pass\n", False),  # torch 0.4 ignores `volatile`
        (VOLATILE + "\nprint(loss.item())\n", False),
        ("def step(x):\n    look(x).backward()  #?\n\nVariable(x, volatile=True)\n", False),
    ],
)
def test_volatile_inputs(code: str, off: bool) -> None:
    file, node = _marked(code)
    assert file.context.grad_off(node) is off


def test_a_switch_of_a_network_is_not_the_method_of_its_trainer() -> None:
    code = """
        class TransformerTrainer:
            def train(self):
                look(x)  #?

            def train_step(self, loss):
                self.transformer.train()
                trainer.train()
        """
    file, node = _marked(code)
    function = file.index.function_of(node)
    assert function is not None
    assert [ast.unparse(call) for call in file.calls.callers(function)] == ["trainer.train()"]
