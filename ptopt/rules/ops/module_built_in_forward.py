from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.source.calls import called_name, last_name
from ptopt.source.index import FunctionNode

# Modules that hold weights: built anew, they are drawn anew, and never trained.
_WEIGHTS = frozenset(
    "Linear Bilinear LazyLinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Embedding EmbeddingBag "
    "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LayerNorm GroupNorm RMSNorm LSTM GRU RNN LSTMCell GRUCell "
    "MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer "
    "TransformerDecoderLayer PReLU".split()
)
# Transforms that compute filters or windows when they are built.
_FILTERS = frozenset(
    "Resample MelSpectrogram MFCC LFCC Spectrogram InverseSpectrogram MelScale InverseMelScale GriffinLim "
    "SpectralCentroid PitchShift".split()
)
_KEEPS = re.compile(r"cache|singleton|once|lazy|memo", re.I)


class ModuleBuiltInForward(Rule):
    """A module or an audio transform is built on every call.

    ## What it does
    Finds `nn.Linear(...)` and other modules with weights, those of the same file among them, and torchaudio transforms that compute filters, constructed in
    `forward` (or a method that it calls) or in a training step, other than into an attribute that is filled once.

    ## Why it is slow
    Weights are allocated and drawn at random on the CPU on every call, and moved to the device where they are used;
    filter banks and resampling kernels are computed again. Such weights are also never trained or saved.

    ## Example
    ```python
    def forward(self, wave):
        mel = torchaudio.transforms.MelSpectrogram(16000)(wave)
        return self.encoder(mel)
    ```

    ## Use instead
    ```python
    def __init__(self):
        super().__init__()
        self.mel = torchaudio.transforms.MelSpectrogram(16000)

    def forward(self, wave):
        return self.encoder(self.mel(wave))
    ```

    ## Fix safety
    None: the construction moves to another method.

    ## Sources
    - [torch.nn.Module](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html)
    """

    id = "PTO410"
    name = "module-built-in-forward"
    family = "ops"
    severity = Severity.HIGH
    nodes = (ast.Call,)
    calls = frozenset(_WEIGHTS) | frozenset(_FILTERS)
    when_wrong = "the weights are meant to be new on each call"

    VALID = (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

            def forward(self, x):
                return self.fc(x)
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                if self.proj is None:
                    self.proj = nn.Linear(x.shape[-1], 8)
                return self.proj(x)
        """,
        """
        class Net(nn.Module):
            def forward(self, x, labels):
                loss = nn.CrossEntropyLoss()(self.fc(x), labels)
                return nn.Softmax(dim=-1)(x), loss
        """,
        """
        class update(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

        class Net(nn.Module):
            def forward(self, x):
                for update in self.updates:
                    x = update(x)
                return self._head(x)(x)

            @singleton("head")
            def _head(self, x):
                return nn.Linear(x.shape[-1], 8)
        """,
        """
        class Net(nn.Module):
            def forward(self, feats):
                if not self.built:
                    self.create(feats)
                return [getattr(self, f"mlp_{i}")(f) for i, f in enumerate(feats)]

            def create(self, feats):
                for i, feat in enumerate(feats):
                    mlp = nn.Sequential(nn.Linear(feat.shape[1], 8), nn.ReLU())
                    setattr(self, f"mlp_{i}", mlp)
        """,
        """
        class Net(nn.Module):
            def _build(self, width):
                return nn.Sequential(nn.Linear(width, width), nn.ReLU())
        """,
    )
    INVALID = (
        Invalid("""
            class Attention(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.qkv = nn.Linear(dim, 3 * dim)

            class Block(nn.Module):
                def forward(self, x):
                    x = x + Attention(x.shape[-1])(x)  # !
                    return self.mlp(x)
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    proj = nn.Linear(x.shape[-1], 8).to(x.device)  # !
                    return proj(x)
        """),
        Invalid("""
            import torchaudio
            from torch import nn

            class Net(nn.Module):
                def forward(self, wave):
                    mel = torchaudio.transforms.MelSpectrogram(16000)(wave)  # !
                    return self.encoder(mel)
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x):
                    return self._norm(self.conv(x))

                def _norm(self, x):
                    return nn.BatchNorm2d(x.shape[1]).to(x.device)(x)  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        """Calls of the names above, and of the classes of the file; `check` looks into the classes of few of them."""
        classes = file.once(_class_names) - self.calls
        own: list[ast.AST] = [call for name in classes for call in file.calls_named(name)]
        return super().candidates(file) + own

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        leaf = called_name(node)
        named = isinstance(node.func, ast.Name) and leaf in file.once(_class_names)
        if not named and leaf not in _WEIGHTS and leaf not in _FILTERS:
            return
        builder = file.index.function_of(node)
        if builder is None or builder.name == "__init__":
            return  # as nearly all, before the classes are looked into
        own = named and leaf in file.once(_own_modules)
        weights = own or leaf in _WEIGHTS
        if not weights and leaf not in _FILTERS:
            return
        module = file.imports.qualified(node.func).rpartition(".")[0]
        if not own and not module.startswith("torch.nn" if weights else "torchaudio.transforms"):
            return
        if own and file.bindings.of(builder, leaf):
            return
        function = file.context.forward_of(node)
        if function is None:
            step = file.context.training_step(node)
            if step is None or step.kind != "loop" or file.guards.rare(node, step.node) is not None:
                return
            place, line = f"on every step of the loop at line {step.node.lineno}", step.node.lineno
        else:
            place, line = "on every forward pass", function.lineno
        if _kept(node, file) or (builder is not function and _built_once(builder, file)):
            return
        what = (
            "allocates new random weights that are never trained" if weights else "computes its filters again"
        )
        yield Problem(
            node,
            f"{quote(file, node)} {what} {place}. Build it once in `__init__` and call it here.",
            TEXTBOOK if weights and (builder is function or _run_here(node, builder, file)) else 0.8,
            (Evidence(line, "runs it each time"),),
        )


def _class_names(file: SourceFile) -> frozenset[str]:
    return frozenset(cls.name for cls in file.index.of_type(ast.ClassDef))


def _own_modules(file: SourceFile) -> frozenset[str]:
    """Classes of the file that hold weights: made in `__init__`, or of another such class."""
    classes = {c.name: c for c in file.index.of_type(ast.ClassDef) if file.context.is_module(c)}
    found: set[str] = set()
    builds: dict[str, set[str]] = {}
    for name, cls in classes.items():
        init = file.calls.method(cls, "__init__")
        made = {called_name(c) for c in file.calls.calls_in(init)} if init is not None else set()
        if made & _WEIGHTS or "Parameter" in made:
            found.add(name)
        builds[name] = made
    for _ in classes:
        more = {name for name, made in builds.items() if made & found} - found
        if not more:
            break
        found |= more
    return frozenset(found)


def _built_once(builder: FunctionNode, file: SourceFile) -> bool:
    """Do conditions decide in all places whether the function that builds is called?"""
    callers = file.calls.callers(builder)
    return bool(callers) and all(
        any(isinstance(a, ast.If) and child is not a.test for a, child in file.index.ancestors(call))
        for call in callers
    )


def _run_here(node: ast.Call, builder: FunctionNode, file: SourceFile) -> bool:
    """Does the function that builds it also run it, so that it does not live longer?"""
    statement = file.index.statement_of(node)
    names = {last_name(t) for t in statement.targets} if isinstance(statement, ast.Assign) else set()
    return any(called_name(call) in names or call.func is node for call in file.calls.calls_in(builder))


def _kept(node: ast.Call, file: SourceFile) -> bool:
    """Is the module stored in an attribute, a cache or behind a test, so that it may be built only once?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, ast.Assign) and any(
            isinstance(t, (ast.Attribute, ast.Subscript)) for t in ancestor.targets
        ):
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            return True
        if method_call(ancestor, "add_module", "register_module", "append", "setdefault") is not None:
            return True
        if isinstance(ancestor, ast.Call) and called_name(ancestor) == "setattr":
            return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(_KEEPS.search(file.source(decorator)) for decorator in ancestor.decorator_list)
    return False
