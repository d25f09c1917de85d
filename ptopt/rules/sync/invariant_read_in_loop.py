from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import Loop, own_nodes, walk
from ptopt.source.torch_names import TENSOR_ONLY_METHODS
from ptopt.source.value import UNKNOWN

_LOADER = re.compile(r"load|data|batch|(^|_)dl|iter", re.I)
_READS = ("item", "tolist", "cpu", "numpy")

_UNCHANGED = "nothing in the loop changes it"


class InvariantReadInLoop(Rule):
    """A loop that runs a model reads back, each time, a tensor that the loop does not change.

    ## What it does
    Finds `.item()`, `.tolist()`, `.cpu()` and `.numpy()` in a loop that calls a module (denoising, generation,
    evaluation), on a tensor made before the loop, or on the loop's own variable when the loop runs over a tensor such
    as `timesteps`.

    ## Why it is slow
    Each read waits for all the kernels that the previous iteration queued, so that the CPU never runs ahead. The
    values are known before the loop starts: one read there serves all iterations.

    ## Example
    ```python
    for t in timesteps:
        noise = self.transformer(latents, t, txt_seq_lens=mask.sum(dim=1).tolist())
    ```

    ## Use instead
    ```python
    txt_seq_lens = mask.sum(dim=1).tolist()
    for t in timesteps:
        noise = self.transformer(latents, t, txt_seq_lens=txt_seq_lens)
    ```

    ## Fix safety
    No fix: the read moves out of the loop, to a line that the change may not show.

    ## Sources
    - [Sync-free pipelines in diffusers](https://github.com/huggingface/diffusers/pull/11696)
    """

    id = "PTO105"
    name = "invariant-read-in-loop"
    family = "sync"
    triggers = (".item()", ".tolist()", ".cpu()", ".numpy()")
    requires = ("for ", "while ")
    nodes = (ast.Call,)
    calls = frozenset(_READS)
    when_wrong = "something in the loop changes the tensor in place, or it lives on the CPU"

    VALID = (
        """
        def test(self, loader):
            for i, (x, y) in enumerate(loader):
                outputs = self.model(x.to(self.device))
                y = y[:, -self.length :].to(self.device)
                self.collect(outputs, y.detach().cpu().numpy())
        """,
        """
        def test(self, test_loader):
            for y in test_loader:
                self.collect(self.model(y.to(self.device)), y.detach().unsqueeze(0).cpu())
        """,
        """
        def sample(self, latents, timesteps, mask):
            lengths = mask.sum(dim=1).tolist()
            for t in timesteps:
                latents = self.transformer(latents.to(self.device), t, lengths)
            return latents
        """,
        """
        def generate(self, ids):
            for _ in range(self.max_tokens):
                logits = self.model(ids.to(self.device))
                token = logits[:, -1].argmax(-1)
                if token.item() == self.eos:
                    break
                ids = self.append(ids, token)
        """,
        """
        def check(self, latents, timesteps, mask):
            for t in timesteps:
                if self.debug:
                    print(mask.sum(dim=1).tolist())
                latents = self.transformer(latents.to(self.device), t)
        """,
        """
        def report(names, losses, device):
            scores = torch.stack(losses).to(device)
            for i, name in enumerate(names):
                print(name, scores[i].item())
        """,
    )
    INVALID = (
        Invalid("""
            def sample(self, latents, timesteps, mask):
                for t in timesteps:
                    noise = self.transformer(
                        latents.to(self.device),
                        t,
                        txt_seq_lens=mask.sum(dim=1).tolist(),  # !
                    )
                    latents = self.scheduler.step(noise, t, latents)
                return latents
        """),
        Invalid("""
            def sample(self, latents):
                timesteps = torch.linspace(1, 0, self.steps, device=latents.device)
                for i, t in enumerate(timesteps):
                    timestep = t.expand(latents.shape[0])
                    t_norm = timestep[0].item()  # !
                    scale = 0.0 if t_norm > self.cut else self.scale
                    latents = latents - scale * self.unet(latents, timestep)
                return latents
        """),
        Invalid("""
            def decode(self, features, lengths: torch.Tensor):
                state = None
                while state is None or state.open:
                    state = self.decoder(features.to(self.device), state, lengths.max().item())  # !
                return state
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        tensor = method_call(node, *_READS)
        if tensor is None or not file.uses_accelerator:
            return
        loop = next(file.index.loops_of(node), None)
        if loop is None or file.context.training_step(node) is not None:
            return  # a training step is the other rules' business
        module = _module_call(loop, file)
        if module is None or file.guards.rare(node, loop) is not None:
            return
        if _in_module_call_only_once(node, loop, file):
            return
        # Last what takes the callers of the function to tell.
        source = _fixed_before(tensor, loop, file)
        value = file.values.of(tensor) if source is not None else UNKNOWN
        if source is None or value.kind not in ("tensor", "") or value.device == "cpu":
            return
        if not value.kind and not _tensor_like(tensor):
            return
        yield Problem(
            node,
            f"{quote(file, node)} makes Python wait for the GPU on every iteration, yet {source}. "
            f"{_advice(source)} before the loop at line {loop.lineno}.",
            0.75 if value.kind else 0.65,
            (Evidence(module.lineno, f"the loop runs {quote(file, module.func)}"),),
            cause=loop,
        )


def _advice(source: str) -> str:
    return "Read it once" if source == _UNCHANGED else "Read all of them with one `.tolist()`"


def _tensor_like(expr: ast.expr) -> bool:
    """A reduction over named dimensions, which arrays spell `axis`."""
    return isinstance(expr, ast.Call) and any(k.arg == "dim" for k in expr.keywords)


def _fixed_before(expr: ast.expr, loop: Loop, file: SourceFile) -> str | None:
    """Why the value is known before the loop starts, in words; None when it may change in the loop."""
    from_target = False
    pending = list(_names(expr))
    seen: set[str] = set()
    targets = (
        {n.id for n in walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
    )
    while pending:
        name = pending.pop()
        if name.id in seen:
            continue
        seen.add(name.id)
        if name.id in targets:
            batches = isinstance(loop, ast.For) and _LOADER.search(ast.unparse(loop.iter))
            if batches or not (file.values.is_tensor(name) or _used_as_tensor(name.id, loop, file)):
                return None
            from_target = True
            continue
        if file.bindings.is_filled_in(name.id, loop):
            return None
        sources = _sources_inside(name.id, loop, file)
        if sources is None:
            return None
        pending += sources
    stored = _attributes_stored_in(loop, file)
    if any(isinstance(n, ast.Attribute) and file.source(n) in stored for n in walk(expr)):
        return None
    if from_target:
        return "it follows from the tensor that the loop runs over"
    return _UNCHANGED


@remembered
def _sources_inside(name: str, loop: Loop, file: SourceFile) -> list[ast.Name] | None:
    """The names, each once, that `name` gets its values from in the loop; None when it may get a new one."""
    sources: dict[str, ast.Name] = {}
    for binding in file.bindings.inside(file.index.function_of(loop), name, loop):
        if binding.kind != "assign" or binding.value is None or _calls_module(binding.value, file):
            return None
        for source in _names(binding.value):
            sources.pop(source.id, None)  # the last one counts, where it stands
            sources[source.id] = source
    return list(sources.values())


def _names(expr: ast.expr) -> Iterator[ast.Name]:
    """Names whose values matter: not those that only lend their shape, type or device."""
    stack: list[ast.AST] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "device", "ndim"):
            continue
        if method_call(node, "size", "dim", "numel") is not None:
            continue
        if isinstance(node, ast.Name):
            yield node
        stack.extend(ast.iter_child_nodes(node))


@remembered
def _used_as_tensor(name: str, loop: Loop, file: SourceFile) -> bool:
    """Is the name a whole item of something like `timesteps`, and does the loop use it as only a tensor can be used?

    The items of a loader are tensors too, but each of them is new.
    """
    if not isinstance(loop, ast.For) or _LOADER.search(ast.unparse(loop.iter)):
        return False
    counted = (
        isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2
    )
    item = loop.target.elts[1] if counted and isinstance(loop.target, ast.Tuple) else loop.target
    return (
        isinstance(item, ast.Name)
        and item.id == name
        and any(
            isinstance(n, ast.Attribute)
            and n.attr in TENSOR_ONLY_METHODS
            and isinstance(n.value, ast.Name)
            and n.value.id == name
            for n in own_nodes(loop)
        )
    )


@remembered
def _attributes_stored_in(loop: Loop, file: SourceFile) -> frozenset[str]:
    return frozenset(
        file.source(n)
        for n in own_nodes(loop)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    )


@remembered
def _calls_module(expr: ast.expr, file: SourceFile) -> bool:
    return any(isinstance(n, ast.Call) and _is_module_call(n, file) for n in walk(expr))


def _is_module_call(call: ast.Call, file: SourceFile) -> bool:
    """`self.unet(...)`, `model(...)`: a call of something that is a module, or is named like one."""
    func = call.func
    name = last_name(func)
    if name.rstrip("0123456789").rstrip("_") in (
        "model",
        "unet",
        "transformer",
        "decoder",
        "encoder",
        "net",
        "vae",
        "denoiser",
    ):
        return True
    return file.values.is_a(func, "module")


@remembered
def _module_call(loop: Loop, file: SourceFile) -> ast.Call | None:
    return next((n for n in own_nodes(loop) if isinstance(n, ast.Call) and _is_module_call(n, file)), None)


def _in_module_call_only_once(node: ast.AST, loop: Loop, file: SourceFile) -> bool:
    """The loop is left right after the read: `return`, `break` in the same block."""
    block = file.index.parent(file.index.statement_of(node))
    body = getattr(block, "body", [])
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Break))
