from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.rules.autograd._models import escapes, network_of, networks
from ptopt.rules.autograd._no_grad import decorate
from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile, quote
from ptopt.source.index import FunctionNode

_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|valid|validate|validation|val|test|testing)(_|$|\d)", re.I
)
_INFERS = re.compile(
    r"(^|_)(predict\w*|infer|inference|generate|sample|sampling|rollout|transcribe|translate|detect|classify|recognize|caption"
    r"|extract_features?|embed\w*|encode|inpaint|upscale|enhance|separate|demo)(_|$)",
    re.I,
)
_COLLECTS = re.compile(r"(^|_)(collect|rollout|play|act)(_|$)", re.I)
# Somebody wants a gradient here, or the forward runs once to be looked at.
_WANTS_GRAPH = re.compile(
    r"backward|autograd\.[a-zF]|volatile|requires_grad|enable_grad|retain_grad|\.grad\b|jacobian|hessian|log_?prob|captum|attack|saliency"
    r"|grad_?cam|onnx|\btrace\(|\.export\(|torch\.export|profile|flops|benchmark|functional_call|\bgrad\(|vjp|jvp|TTT|optim"
)
_FRAMEWORK = re.compile(r"Lightning|Callback|Brain$|Trainer$|TestCase|^Pipeline$|ChunkPipeline|Hook$")
_PLAIN_RESULT = re.compile(
    r"^(list\[str\]|str|float|int|bool|np\.ndarray|numpy\.ndarray|ndarray|list\[float\]|list\[int\])$", re.I
)


@dataclass(frozen=True, slots=True)
class _Case:
    """Why a place evaluates, and how sure that is."""

    why: str
    confidence: float


class EvaluationRecordsGraph(Rule):
    """A network is evaluated with autograd recording.

    ## What it does
    Finds functions and scripts that run a network to evaluate, predict or generate, never train, and turn autograd
    off nowhere: not by `with torch.no_grad()`, a decorator, a global switch, or at the callers in the file.

    ## Why it is slow
    Every operation then keeps its inputs for a `backward()` that never comes. Peak memory is several times that of
    inference, which limits the batch size or ends in an out-of-memory error, and each operation pays for recording.

    ## When this is wrong
    When the result is backpropagated somewhere else, or when every caller (in another file) already turns autograd
    off.

    ## Example
    ```python
    def validate(model, loader):
        model.eval()
        correct = 0
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum()
        return correct
    ```

    ## Use instead
    ```python
    @torch.no_grad()
    def validate(model, loader):
        model.eval()
        correct = 0
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum()
        return correct
    ```
    `torch.inference_mode()` is slightly faster still; its tensors can never enter autograd again, so that it is not
    a drop-in where a result is kept.

    ## Fix safety
    Unsafe: nothing that the function returns or stores may be backpropagated.

    ## Sources
    - [PyTorch performance tuning guide: disable gradient calculation for validation or inference](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    - [Autograd mechanics: locally disabling gradient computation](https://docs.pytorch.org/docs/stable/notes/autograd.html)
    """

    id = "PTO501"
    name = "evaluation-records-graph"
    family = "autograd"
    severity = Severity.HIGH
    triggers = (
        ".eval()", "eval", "val", "test", "predict", "infer", "generate", "sampl", "collect", "rollout", "str", "encode",
    )  # fmt: skip
    nodes = (ast.FunctionDef, ast.Module)
    when_wrong = (
        "the result is backpropagated elsewhere, or every caller in other files already turns autograd off"
    )

    VALID = (
        """
        @torch.no_grad()
        def validate(model, loader, device):
            model.eval()
            for x, y in loader:
                metric.update(model(x.to(device)), y)
        """,
        """
        def evaluate(model, loader):
            model.eval()
            return sum(accuracy(model(x), y).item() for x, y in loader)

        with torch.no_grad():
            print(evaluate(model, loader))
        """,
        """
        def test_robustness(model, loader, epsilon):
            model.eval()
            for x, y in loader:
                x.requires_grad_()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                x = x + epsilon * x.grad.sign()
        """,
        """
        class Net(pl.LightningModule):
            def validation_step(self, batch, batch_idx):
                self.log("loss", F.cross_entropy(self(batch.x), batch.y))

            def test_step(self, batch, batch_idx):
                self.log("loss", F.cross_entropy(self.net(batch.x), batch.y))
        """,
        """
        class Policy(nn.Module):
            def predict(self, x):
                return self.net(x)

            def forward(self, x):
                return self.predict(x)
        """,
        """
        def generate(model, tokenizer, prompt):
            model.eval()
            inputs = tokenizer(prompt, return_tensors="pt")
            return tokenizer.decode(model.generate(**inputs)[0])
        """,
        """
        model.eval()
        torch.set_grad_enabled(False)
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
        """,
    )
    INVALID = (
        Invalid(
            """
            def test(epoch):
                net.eval()
                correct = 0
                for images, labels in test_loader:
                    outputs = net(images.cuda())  # !
                    correct += (outputs.argmax(1) == labels.cuda()).sum().item()
                return correct / len(test_loader.dataset)
            """,
            """
            @torch.no_grad()
            def test(epoch):
                net.eval()
                correct = 0
                for images, labels in test_loader:
                    outputs = net(images.cuda())
                    correct += (outputs.argmax(1) == labels.cuda()).sum().item()
                return correct / len(test_loader.dataset)
            """,
        ),
        Invalid(
            """
            def main():
                model = build().cuda()
                model.eval()
                for image, label in test_loader:
                    _, pred = model(image.cuda()).topk(5, 1)  # !
                    correct += pred.eq(label.cuda()).sum().item()
                print(correct)
            """,
            """
            @torch.no_grad()
            def main():
                model = build().cuda()
                model.eval()
                for image, label in test_loader:
                    _, pred = model(image.cuda()).topk(5, 1)
                    correct += pred.eq(label.cuda()).sum().item()
                print(correct)
            """,
        ),
        Invalid(
            """
            class Classifier:
                def predict(self, loader):
                    self.model.eval()
                    found = []
                    for x in loader:
                        found.append(self.model(x.to(self.device)).argmax(1).cpu().numpy())  # !
                    return np.concatenate(found)
            """,
            """
            class Classifier:
                @torch.no_grad()
                def predict(self, loader):
                    self.model.eval()
                    found = []
                    for x in loader:
                        found.append(self.model(x.to(self.device)).argmax(1).cpu().numpy())
                    return np.concatenate(found)
            """,
        ),
        Invalid(
            """
            model.eval()
            for x, y in test_loader:
                correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()  # !
            """
        ),
    )
    BENCHMARK = Benchmark(
        setup="""
            model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.ReLU())]).eval()
            x = torch.randn(256, 256)
            """,
        before="result = model(x).detach()",
        after="""
            with torch.no_grad():
                result = model(x)
            """,
        scope="the forward pass",
        sizes="8 layers of 256, batch of 256, fp32",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        function = node if isinstance(node, ast.FunctionDef) else None
        if function is not None and function.name in ("forward", "__init__", "training_step"):
            return
        if not file.imports.imports("torch") or not _worth_a_look(function, file):
            return
        calls = [
            (call, path)
            for call in file.calls.calls_in(function)
            if (path := network_of(call, file)) and path not in networks(file).frozen
        ]
        if not calls:
            return
        evals = _evaluated_in(function, file)
        on = [(c, p) for c, p in calls if not _off(c, file)]
        if len(on) < len(calls):
            return  # the author knows, and left out a warm-up or the like
        calls = [(c, p) for c, p in on if not _in_training(c, function, file) and not _discarded(c, file)]
        case = _case(function, calls, evals, file) if calls else None
        if case is None or (function is not None and _wanted_elsewhere(function, calls, file)):
            return
        call, path = next(((c, p) for c, p in calls if p in evals), calls[0])
        within = f"`{function.name}`" if function is not None else "This script"
        remedy = (
            "Decorate it with `@torch.no_grad()`"
            if function is not None
            else "Put it under `with torch.no_grad():`"
        )
        yield Problem(
            call,
            f"{within} {case.why}, but autograd records {quote(file, call, 40)}: each pass keeps its activations "
            f"for a `backward()` that never comes. {remedy}.",
            case.confidence,
            tuple(Evidence(c.lineno, f"runs `{p}` with autograd on") for c, p in calls),
            decorate(function, file) if function is not None else None,
        )


def _worth_a_look(function: FunctionNode | None, file: SourceFile) -> bool:
    """The cheap half of `_case`: is there any sign at all that this code evaluates?"""
    if function is None or networks(file).evaluated or function.returns is not None:
        return True
    if function.name == "__call__":
        return "DiffusionPipeline" in file.text
    return any(pattern.search(function.name) for pattern in (_EVALUATES, _INFERS, _COLLECTS))


def _case(
    function: FunctionNode | None, calls: list[tuple[ast.Call, str]], evals: dict[str, int], file: SourceFile
) -> _Case | None:
    """Does this code evaluate, and from what do we know?"""
    looped = any(next(file.index.loops_of(c), None) is not None for c, _ in calls)
    switched = any(path in evals and evals[path] < call.lineno for call, path in calls)
    over_data = any(file.context.is_eval_loop(loop) for c, _ in calls for loop in file.index.loops_of(c))
    if function is None:
        if _WANTS_GRAPH.search(file.text):
            return None
        if looped and (switched or over_data):
            return _Case("evaluates", 0.8 if switched and over_data else 0.7)
        return None
    if file.context.trains(function) or _WANTS_GRAPH.search(file.source(function)):
        return None
    kept = escapes(function, [c for c, _ in calls], file)
    in_module = _class_is_module(function, file)
    if _EVALUATES.search(function.name):
        sure = 0.85 if looped and (switched or over_data) else 0.75 if looped or switched else 0.62
        if kept and not looped and not switched:
            sure = 0.45
        return _Case("only evaluates", sure - (0.15 if in_module and not switched else 0.0))
    if switched or over_data:
        sure = 0.8 if looped and not kept else 0.72 if not kept else 0.6
        return _Case(f"puts `{calls[0][1]}` in eval mode" if switched else "runs over evaluation data", sure)
    if function.name == "__call__" and looped and _is_diffusion_pipeline(function, file):
        return _Case("runs the whole pipeline", 0.7)
    if _INFERS.search(function.name):
        if kept:
            return _Case("only infers", 0.4)
        return _Case(
            "returns nothing that carries a graph", 0.65 if not function.name.startswith("_") else 0.55
        )
    if _COLLECTS.search(function.name) and looped and _steps_environment(function, file):
        return _Case("collects experience", 0.62)
    returns = (
        file.source(function.returns).replace(" ", "").replace("typing.", "") if function.returns else ""
    )
    if (
        _PLAIN_RESULT.match(returns)
        and not kept
        and any(p == "self" or p in networks(file).known for _, p in calls)
    ):
        return _Case(f"returns only `{returns}`", 0.62)
    return None


def _evaluated_in(function: FunctionNode | None, file: SourceFile) -> dict[str, int]:
    """Networks that the function itself puts in eval mode, with the line."""
    if not networks(file).evaluated:
        return {}
    found: dict[str, int] = {}
    for call in file.calls.calls_in(function):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "eval" and not call.args:
            paths = [file.source(func.value)]
            parent = file.index.parent(call)
            if isinstance(parent, ast.Assign):
                paths += [file.source(target) for target in parent.targets]
            for path in paths:
                found.setdefault(path, call.lineno)
    return found


def _off(call: ast.Call, file: SourceFile) -> bool:
    """Autograd is off here, or may be, by a context that cannot be told."""
    if file.context.grad_off(call):
        return True
    for ancestor, _ in file.index.ancestors(call):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            for item in ancestor.items:
                text = file.source(item.context_expr)
                opaque = re.search(r"ctx|context|mode|grad|eval|infer|stack", text, re.I)
                if opaque and not re.search(r"autocast|amp", text, re.I):
                    return True
    return False


def _discarded(call: ast.Call, file: SourceFile) -> bool:
    """A warm-up: nobody keeps the result, so that the graph dies at once."""
    parent = file.index.parent(call)
    while isinstance(parent, ast.IfExp):
        parent = file.index.parent(parent)
    if isinstance(parent, ast.Assign):
        return all(isinstance(t, ast.Name) and t.id == "_" for t in parent.targets)
    return isinstance(parent, ast.Expr)


def _in_training(call: ast.Call, function: FunctionNode | None, file: SourceFile) -> bool:
    """Does the call stand in a training loop, or feed one?"""
    step = file.context.training_step(call)
    if step is None:
        return file.context.forward_of(call) is not None
    if step.kind == "loop" and function is not None and step.node is not function:
        return True
    return not (function is not None and file.context.is_eval_function(function))


def _wanted_elsewhere(function: FunctionNode, calls: list[tuple[ast.Call, str]], file: SourceFile) -> bool:
    """Does a framework run the function without autograd, or a caller backpropagate what it returns?"""
    cls = file.index.class_of(function)
    if cls is not None and any(_FRAMEWORK.search(file.source(base)) for base in cls.bases):
        return True
    if "test" in function.name and re.search(r"\bassert|pytest|raises", file.source(function)):
        return True
    callers = file.calls.callers(function)
    return any(
        file.context.training_step(c) is not None or file.context.forward_of(c) is not None for c in callers
    ) and (escapes(function, [c for c, _ in calls], file))


def _is_diffusion_pipeline(function: FunctionNode, file: SourceFile) -> bool:
    """diffusers leaves it to each pipeline to turn autograd off."""
    cls = file.index.parent(function)
    return isinstance(cls, ast.ClassDef) and any("DiffusionPipeline" in file.source(base) for base in cls.bases)


def _class_is_module(function: FunctionNode, file: SourceFile) -> bool:
    cls = file.index.parent(function)
    return isinstance(cls, ast.ClassDef) and file.context.is_module(cls)


def _steps_environment(function: FunctionNode, file: SourceFile) -> bool:
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr == "step"
        and re.search(r"(^|[._])envs?$", file.source(c.func.value))
        for c in file.calls.calls_in(function)
    )
