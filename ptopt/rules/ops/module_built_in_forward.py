from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, method_call, quote

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


class ModuleBuiltInForward(Rule):
    """A module or an audio transform is built on every call.

    ## What it does
    Finds `nn.Linear(...)` and other modules with weights, and torchaudio transforms that compute filters, constructed in
    `forward` (or a method that it calls) or in a training step, other than into an attribute that is filled once.

    ## Why it is slow
    Weights are allocated and drawn at random on the CPU on every call, and moved to the device where they are used;
    filter banks and resampling kernels are computed again. Such weights are also never trained or saved.

    ## When this is wrong
    When the random weights are meant to be new on each call.

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
        class Net(nn.Module):
            def _build(self, width):
                return nn.Sequential(nn.Linear(width, width), nn.ReLU())
        """,
    )
    INVALID = (
        Invalid(
            """
            class Net(nn.Module):
                def forward(self, x):
                    proj = nn.Linear(x.shape[-1], 8).to(x.device)  # !
                    return proj(x)
            """
        ),
        Invalid(
            """
            import torchaudio
            from torch import nn

            class Net(nn.Module):
                def forward(self, wave):
                    mel = torchaudio.transforms.MelSpectrogram(16000)(wave)  # !
                    return self.encoder(mel)
            """
        ),
        Invalid(
            """
            class Net(nn.Module):
                def forward(self, x):
                    return self._norm(self.conv(x))

                def _norm(self, x):
                    return nn.BatchNorm2d(x.shape[1]).to(x.device)(x)  # !
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        leaf = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        weights = leaf in _WEIGHTS
        if not weights and leaf not in _FILTERS:
            return
        module = file.imports.qualified(node.func).rpartition(".")[0]
        if not module.startswith("torch.nn" if weights else "torchaudio.transforms"):
            return
        builder = file.index.function_of(node)
        if builder is None or builder.name == "__init__":
            return
        function = file.context.forward_of(node)
        if function is None:
            step = file.context.training_step(node)
            if step is None or step.kind != "loop" or file.guards.rare(node, step.node) is not None:
                return
            place, line = f"on every step of the loop at line {step.node.lineno}", step.node.lineno
        else:
            place, line = "on every forward pass", function.lineno
        if _kept(node, file):
            return
        what = (
            "allocates new random weights that are never trained" if weights else "computes its filters again"
        )
        yield Problem(
            node,
            f"{quote(file, node)} {what} {place}. Build it once in `__init__` and call it here.",
            0.8,
            (Evidence(line, "runs it each time"),),
        )


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
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any("cache" in file.source(decorator) for decorator in ancestor.decorator_list)
    return False
