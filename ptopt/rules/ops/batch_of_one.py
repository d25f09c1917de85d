from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import is_range, names_in
from ptopt.rules.ops._one_sample import (
    BATCHES,
    dependent,
    feeds_back,
    few_or_blocks,
    first_calls,
    given_sample,
)
from ptopt.source.index import walk

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
    most_stated = 0.4
    triggers = ("unsqueeze(", "None", "stack(", "generate(")
    nodes = (ast.For, ast.ListComp)
    when_wrong = "the samples differ in size, or arrive one by one"

    VALID = (
        """
        def blocks(model, points, size):
            out = []
            for b in range(len(points) // size):
                part = points[b * size : (b + 1) * size].cuda()
                if part.dim() < 3:
                    part = part.unsqueeze(0)
                out.append(model(part)[0].cpu())
            return out
        """,
        """
        def run(self, xs, state):
            outs = []
            for x in xs:
                out, state = self.lstm(
                    x.unsqueeze(0),
                    (state[0], state[1]),
                )
                outs.append(out)
            return outs
        """,
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
        def explain(model, images):
            for image in images:
                save(grad_cam(model, image.unsqueeze(0)))
                model.register_example(image[None])
        """,
        """
        def predict(model, batch, optimizer):
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()

        def adapt(model, images, optimizer):
            for image in images:
                predict(model, image[None], optimizer)
        """,
        """
        def roll_out(model, actions, state):
            states = []
            for action in actions:
                state = model.predict_next(torch.cat([state, action])[None])[0]
                states.append(state)
            return states
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
        Invalid("""
            @torch.no_grad()
            def answers(model, tokenizer, prompts, device):
                found = []
                for prompt in prompts:
                    batch = tokenizer(prompt, return_tensors="pt").to(device)
                    tokens = model.generate(**batch, max_new_tokens=128)  # !
                    found.append(tokenizer.decode(tokens[0]))
                return found
        """),
        Invalid("""
            for path in paths:
                image = transform(Image.open(path)).unsqueeze(0).to(device)
                feats.append(model(image))  # !
        """),
        Invalid("""
            for info in tqdm(infos):
                latents = vae.encode(load(info)[None]).latent_dist.sample()  # !
                info.latents = latents.cpu()
        """),
        Invalid("""
            def transcribe_all(model, paths, options):
                texts = {}
                for path in sorted(paths):
                    mel = pad_or_trim(spectrogram(path)).to(model.device)
                    texts[path] = decode(model, mel.unsqueeze(0), options)[0].text  # !
                return texts
        """),
        Invalid("""
            def embed_all(model, mels):
                found = torch.empty(0, model.width)
                for mel in mels:
                    features = model.embed_audio(mel[None].to(model.device))  # !
                    found = torch.cat([found, features.mean(dim=1).cpu()])
                return found
        """),
        Invalid("""
            def features(self, images):
                return [self.backbone(image.unsqueeze(0)) for image in images]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        call = file.once(first_calls).get(node)
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
            subject=given_sample(call, file),
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
    if BATCHES.search(file.source(loop.iter)) or few_or_blocks(loop.iter):
        return
    if feeds_back(loop) or _WAITS_FOR_PEOPLE.search(file.source(loop)):
        return
    reached = dependent(names_in(loop.target), loop)
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
            beside(call, tokenized, "one prompt"),
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
