from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, method_call, quote
from ptopt.rules.ops._calls import int_literal, is_range, names_in
from ptopt.rules.ops.slice_loop import reported
from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.index import own_nodes, walk

_NETWORK = re.compile(
    r"(^|_)(model|net|network|encoder|decoder|vae|unet|backbone|generator|clip|extractor|classifier|predictor|detector)(_|$|\d)|(^|_)net[A-Z]?$",
    re.I,
)
_BATCHES = re.compile(r"loader|batches|epoch|layers|blocks|steps|timesteps", re.I)
_REPEATS = (ast.For, ast.While, ast.ListComp, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_METHODS = frozenset(
    {"encode", "decode", "forward", "encode_image", "encode_text", "predict", "inference", "generate"}
)
_TOKENIZES = re.compile(r"(^|[._])tokenizer?$|(^|[._])tokenizer\.encode$|(^|[._])tok$", re.I)
_SEVERAL = re.compile(r"(?:texts|sequences|prompts|batch|queries|questions|sentences|messages|inputs)$", re.I)
_WAITS_FOR_PEOPLE = re.compile(r"\binput\(|chat|history|stream", re.I)


class BatchOfOne(Rule):
    """A network runs on one sample at a time.

    ## What it does
    Finds a loop over samples that adds a batch dimension of one (`unsqueeze(0)`, `x[None]`, `torch.stack([x])`) and calls a
    network with it, and one that tokenizes one prompt and generates from it, where no iteration needs the one before.

    ## Why it is slow
    With one sample, a GPU spends most of its time on launches and on reading the weights. A batch reads them once.

    ## When this is wrong
    When the samples differ in size, or arrive one by one.

    ## Example
    ```python
    for path in paths:
        feats.append(model(load(path).unsqueeze(0).to(device)))
    ```

    ## Use instead
    ```python
    for images in DataLoader(dataset, batch_size=32, num_workers=4):
        feats.append(model(images.to(device)))
    ```

    ## Fix safety
    None: the loading changes, too.

    ## Sources
    - [PyTorch data loading](https://docs.pytorch.org/docs/stable/data.html)
    """

    id = "PTO449"
    name = "batch-of-one"
    family = "ops"
    severity = Severity.MEDIUM
    triggers = ("unsqueeze(", "None", "stack(", "generate(")
    nodes = (ast.For, ast.ListComp)
    when_wrong = "the samples differ in size, or arrive one by one"

    VALID = (
        """
        def answers(model, tokenizer, batches):
            for texts in batches:
                batch = tokenizer(list(texts), padding=True, return_tensors="pt").to("cuda")
                yield model.generate(**batch, max_new_tokens=128)
        """,
        """
        def talk(model, tokenizer, turns):
            history = ""
            for turn in turns:
                history += turn
                tokens = model.generate(**tokenizer(history, return_tensors="pt"))
                history += tokenizer.decode(tokens[0])
        """,
        """
        for images in loader:
            feats.append(model(images.to(device)))
        """,
        """
        for _ in range(steps):
            action = model(state.unsqueeze(0))
            state = env.step(action)
        """,
        """
        for x in xs:
            y = F.conv2d(x.unsqueeze(0), kernel)
        """,
    )
    INVALID = (
        Invalid(
            """
            @torch.no_grad()
            def answers(model, tokenizer, prompts, device):
                found = []
                for prompt in prompts:
                    batch = tokenizer(prompt, return_tensors="pt").to(device)
                    tokens = model.generate(**batch, max_new_tokens=128)  # !
                    found.append(tokenizer.decode(tokens[0]))
                return found
            """
        ),
        Invalid(
            """
            for path in paths:
                image = transform(Image.open(path)).unsqueeze(0).to(device)
                feats.append(model(image))  # !
            """
        ),
        Invalid(
            """
            for info in tqdm(infos):
                latents = vae.encode(load(info)[None]).latent_dist.sample()  # !
                info.latents = latents.cpu()
            """
        ),
        Invalid(
            """
            def features(self, images):
                return [self.backbone(image.unsqueeze(0)) for image in images]  # !
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        call = file.once(_first_calls).get(node)
        if call is None or not isinstance(node, (ast.For, ast.ListComp)):
            yield from _one_prompt(node, file)
            return
        iterable = node.iter if isinstance(node, ast.For) else node.generators[0].iter
        name = quote(file, call.func, 40)
        yield Problem(
            call,
            f"{name} gets a batch of one in each iteration of the loop at line {node.lineno}. Collect several samples of one size, "
            f"`torch.stack` them, and call {name} once for the batch; a `DataLoader` with `batch_size` and workers also loads them in parallel.",
            0.35,
            (Evidence(node.lineno, "the loop over the samples"),),
            cause=node,
            subject=call.args[0],
            facts={
                "range": is_range(iterable),
                "files": bool(re.search(r"path|file|glob|dir", file.source(iterable))),
                "comprehension": isinstance(node, ast.ListComp),
            },
        )


def _one_prompt(loop: ast.AST, file: SourceFile) -> Iterator[Problem]:
    """`for prompt in prompts: model.generate(**tokenizer(prompt))`, once for each prompt of a list."""
    calls = file.once(_generations).get(loop)
    if not isinstance(loop, ast.For) or not calls:
        return
    if _BATCHES.search(file.source(loop.iter)) or _few_or_blocks(loop.iter):
        return
    if _feeds_back(loop) or _WAITS_FOR_PEOPLE.search(file.source(loop)):
        return
    reached = _reached(names_in(loop.target), loop)
    for call in calls:
        tokenized = _tokenized(call, file)
        text = tokenized.args[0] if tokenized is not None and tokenized.args else None
        if tokenized is None or text is None or isinstance(text, (ast.List, ast.ListComp)):
            continue
        if isinstance(text, ast.Name) and (_SEVERAL.search(text.id) or file.values.of(text).kind == "list"):
            continue
        if not names_in(text) & reached or not file.index.within(tokenized, loop):
            continue
        yield Problem(
            call,
            f"{quote(file, call.func, 40)} runs for one prompt in each iteration of the loop at line {loop.lineno}, and reads all the "
            f"weights for each token of it. Tokenize several prompts in one call of {quote(file, tokenized.func, 30)}, padded (on the "
            "left, unless an encoder reads them), and generate for all of them at once.",
            0.4,
            (Evidence(tokenized.lineno, "one prompt"),) if tokenized.lineno != call.lineno else (),
            cause=loop,
            facts={"range": is_range(loop.iter), "files": False, "comprehension": False},
        )
        return


def _generations(file: SourceFile) -> dict[ast.AST, list[ast.Call]]:
    """Loop -> the calls of `generate` in it."""
    table: dict[ast.AST, list[ast.Call]] = {}
    for call in file.calls_named("generate"):
        loop = next(file.index.loops_of(call), None)
        if loop is not None and isinstance(call.func, ast.Attribute):
            table.setdefault(loop, []).append(call)
    return table


def _tokenized(call: ast.Call, file: SourceFile) -> ast.Call | None:
    """The call of a tokenizer that made what is generated from: `**batch`, `batch.input_ids`, `tokens`."""
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg in (None, "input_ids", "inputs"))]
    for value in given:
        while isinstance(value, (ast.Attribute, ast.Subscript)):
            value = value.value
        binding = file.bindings.last_before(value) if isinstance(value, ast.Name) else None
        made = value if binding is None else binding.value
        for part in walk(made) if made is not None else ():
            if isinstance(part, ast.Call) and _TOKENIZES.search(file.source(part.func)):
                return part
    return None


def _few_or_blocks(iterable: ast.expr) -> bool:
    """A handful of samples, or a range that goes from batch to batch."""
    ranges = [n for n in walk(iterable) if isinstance(n, ast.Call) and is_range(n)]
    return any(len(r.args) == 3 or 0 < (int_literal(r.args[-1]) or 0) < 8 for r in ranges)


def _first_calls(file: SourceFile) -> dict[ast.AST, ast.Call]:
    """Loop over samples -> the first call of a network in it that gets one sample."""
    found: dict[ast.AST, ast.Call] = {}
    for call in file.index.of_type(ast.Call):
        if not call.args or not _may_be_network(call.func):
            continue
        nearest = (a for a, _ in file.index.ancestors(call) if isinstance(a, _REPEATS))
        place = next(nearest, None)
        if isinstance(place, (ast.For, ast.ListComp)) and place not in found and _is_network(call, file):
            target, iterable = (place.target, place.iter) if isinstance(place, ast.For) else _generator(place)
            made = _one_sample(call.args[0], place, file)
            if made is None or _BATCHES.search(file.source(iterable)) or _few_or_blocks(iterable):
                continue
            reached = _reached(names_in(target), place)
            if (
                not names_in(made) & reached
                or _cut(made, reached, place, file)
                or place in file.once(reported)
            ):
                continue
            if file.context.training_step(call) is None and not (
                isinstance(place, ast.For) and _feeds_back(place)
            ):
                found[place] = call
    return found


def _cut(made: ast.expr, reached: set[str], place: ast.AST, file: SourceFile) -> bool:
    """Is the sample cut to a length of its own, so that no two are of one size?"""
    parts = [made]
    binding = file.bindings.last_before(made) if isinstance(made, ast.Name) else None
    if binding is not None and binding.value is not None and file.index.within(binding.value, place):
        parts.append(binding.value)
    slices = (n for part in parts for n in walk(part) if isinstance(n, ast.Slice))
    return any(names_in(bound) & reached for s in slices for bound in (s.lower, s.upper) if bound is not None)


def _generator(place: ast.ListComp) -> tuple[ast.expr, ast.expr]:
    return place.generators[0].target, place.generators[0].iter


def _may_be_network(func: ast.expr) -> bool:
    if isinstance(func, ast.Attribute):
        return func.attr in _METHODS or is_self(func) or _names_a_network(func.attr)
    return isinstance(func, ast.Name) and _names_a_network(func.id)


@lru_cache(maxsize=4096)
def _names_a_network(name: str) -> bool:
    return bool(_NETWORK.search(name))


def _is_network(call: ast.Call, file: SourceFile) -> bool:
    func = call.func
    if file.imports.qualified(func):
        return False
    if isinstance(func, ast.Attribute) and func.attr in _METHODS:
        func = func.value
    if file.values.of(func).kind == "module":
        return True
    name = last_name(func)
    return bool(_NETWORK.search(name))


def _one_sample(arg: ast.expr, place: ast.For | ast.ListComp, file: SourceFile) -> ast.expr | None:
    """The expression that adds the dimension: in the argument, or where its name was assigned in the loop."""
    for node in [arg, *own_nodes(arg)]:
        if isinstance(node, ast.Call) and method_call(node, "unsqueeze") is not None and _is_zero(node.args):
            return arg
        if isinstance(node, ast.Subscript):
            first = (
                node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
            )
            if isinstance(first, ast.Constant) and first.value is None:
                return arg
        if isinstance(node, ast.Call) and file.imports.qualified(node.func) in (
            "torch.unsqueeze",
            "torch.stack",
        ):
            last = node.args[-1] if node.args else None
            if (
                isinstance(last, ast.Constant)
                and last.value == 0
                or isinstance(last, ast.List)
                and len(last.elts) == 1
            ):
                return arg
    if isinstance(arg, ast.Name):
        binding = file.bindings.last_before(arg)
        if (
            binding is not None
            and binding.kind == "assign"
            and binding.value is not None
            and file.index.within(binding.value, place)
        ):
            found = (
                _one_sample(binding.value, place, file) if not isinstance(binding.value, ast.Name) else None
            )
            return arg if found is not None else None
    return None


def _is_zero(args: list[ast.expr]) -> bool:
    return bool(args) and isinstance(args[0], ast.Constant) and args[0].value == 0


def _reached(names: frozenset[str], place: ast.AST) -> set[str]:
    """The names of the loop that depend on its target."""
    reached = set(names)
    for node in own_nodes(place):
        if isinstance(node, ast.Assign) and names_in(node.value) & reached:
            reached |= {n for target in node.targets for n in names_in(target)}
    return reached


def _feeds_back(loop: ast.For) -> bool:
    """Does an iteration read what the one before has left?"""
    names = [node for node in own_nodes(loop) if isinstance(node, ast.Name)]
    stored: dict[str, int] = {}
    for node in names:
        if isinstance(node.ctx, ast.Store):
            stored.setdefault(node.id, node.lineno)
    return any(
        isinstance(n.ctx, ast.Load)
        and n.id in stored
        and n.lineno <= stored[n.id]
        and n.id not in names_in(loop.target)
        for n in names
    )
