from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Benchmark, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.evaluation import evaluation_of, kept_with_graph, may_be_sure_of_one
from ptopt.rules.shared.graphs import summed_with_graph
from ptopt.rules.shared.no_grad import remedy_of


class EvaluationRecordsGraph(Rule):
    """A network is evaluated with autograd recording.

    ## What it does
    Finds functions and scripts that run a network to evaluate, predict or generate, never train, and turn autograd
    off nowhere: not by `with torch.no_grad()`, a decorator, a global switch, or at the callers in the file.

    ## Why it is slow
    Every operation then keeps its inputs for a `backward()` that never comes. Peak memory is several times that of
    inference, which limits the batch size or ends in an out-of-memory error, and each operation pays for recording.

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
        "eval", "val", "test", "predict", "infer", "embed", "generate", "sampl", "collect", "rollout", "str", "encode", "numpy",
        "detach", "item", ".cpu(", "+=",
    )  # fmt: skip
    partly: ClassVar[frozenset[str]] = frozenset({"inference_mode"})
    nodes = (ast.FunctionDef, ast.Module)
    when_wrong = (
        "the result is backpropagated elsewhere, or every caller in other files already turns autograd off"
    )

    VALID = (
        """
        def evaluate(model, loader):
            model.eval()
            print(count_parameters(model))
            for x, y in loader:
                table.add_row(describe(model, x))
        """,
        """
        @torch.no_grad()
        def loss_of(model, x, y):
            return F.cross_entropy(model(x), y)

        def evaluate(model, loader):
            model.eval()
            return sum(loss_of(model, x, y).item() for x, y in loader)
        """,
        """
        def evaluate(model, diffusion, loader):
            model.eval()
            with torch.no_grad():
                for x, y in loader:
                    total += diffusion.training_losses(model, x, y)["loss"].mean().item()
            return total
        """,
        """
        def adapt_loss(model, optimizer, x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        def evaluate(model, optimizer, loader):
            model.eval()
            return sum(adapt_loss(model, optimizer, x, y).item() for x, y in loader)
        """,
        """
        class Images:
            def __init__(self, name, device):
                self.model = AutoPipelineForText2Image.from_pretrained(name).to(device)
                self.model.eval()

            def generate(self, prompts):
                for prompt in prompts:
                    self.save(self.model(prompt=prompt).images[0])
        """,
        """
        class Extractor:
            @cached_property
            def dimension(self) -> int:
                return self.model(torch.rand(1, 16000).to(self.device)).shape[-1]
        """,
        """
        class Backend:
            def __init__(self, model: Pipeline):
                self.embedding_model = model

            def embed(self, documents) -> np.ndarray:
                return np.stack([torch.stack(x).numpy() for x in self.embedding_model(documents)])
        """,
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
        Invalid("""
            def run(model, rays):
                out = model(rays)
                return {"rgb": out}

            def render_rays(models, rays):
                coarse = models[0]
                return run(coarse, rays)

            def render_path(models, dataset, device):
            # + @torch.no_grad()
            # + def render_path(models, dataset, device):
                for model in models:
                    model.eval()
                frames = []
                for i in range(len(dataset)):
                    out = render_rays(models, dataset[i].to(device))  # !
                    frames.append(out["rgb"].cpu().numpy())
                return frames
        """),
        Invalid("""
            def evaluate(model, diffusion, loader, device):
            # + @torch.no_grad()
            # + def evaluate(model, diffusion, loader, device):
                model.eval()
                total = 0.0
                for x, y in loader:
                    loss = diffusion.training_losses(model, x.to(device), dict(y=y))["loss"]  # !
                    total += loss.mean().item()
                return total / len(loader)
        """),
        Invalid("""
            def compute_loss(net, batch):
                return F.cross_entropy(net(batch["x"]), batch["y"])

            def evaluate(model, loader):
            # + @torch.no_grad()
            # + def evaluate(model, loader):
                model.eval()
                total = 0.0
                for batch in loader:
                    total += compute_loss(model, batch).item()  # !
                return total / len(loader)
        """),
        Invalid("""
            def validate(model, criterion, val_loader):
            # + @torch.no_grad()
            # + def validate(model, criterion, val_loader):
                model.eval()
                losses = []
                for batch in val_loader:
                    losses.append(criterion(model, batch))  # !
                print(torch.stack(losses).mean().item())
        """),
        Invalid("""
            def test(epoch):
            # + @torch.no_grad()
            # + def test(epoch):
                net.eval()
                correct = 0
                for images, labels in test_loader:
                    outputs = net(images.cuda())  # !
                    correct += (outputs.argmax(1) == labels.cuda()).sum().item()
                return correct / len(test_loader.dataset)
        """),
        Invalid("""
            def main():
            # + @torch.no_grad()
            # + def main():
                model = build().cuda()
                model.eval()
                for image, label in test_loader:
                    _, pred = model(image.cuda()).topk(5, 1)  # !
                    correct += pred.eq(label.cuda()).sum().item()
                print(correct)
        """),
        Invalid("""
            class Classifier:
            # + class Classifier:
            # +     @torch.no_grad()
                def predict(self, loader):
                    self.model.eval()
                    found = []
                    for x in loader:
                        found.append(self.model(x.to(self.device)).argmax(1).cpu().numpy())  # !
                    return np.concatenate(found)
        """),
        Invalid("""
            model.eval()
            for x, y in test_loader:
            # +
                correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()  # !
            # + with torch.no_grad():
            # +     for x, y in test_loader:
            # +         correct += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
        """),
        Invalid("""
            def main():
                for epoch in range(epochs):
                    model.train()
                    for x, y in train_loader:
                        loss = F.cross_entropy(model(x.cuda()), y.cuda())
                        loss.backward()
                        optimizer.step()
                    model.eval()
                    for x, y in val_loader:
                    # +
                        correct += (model(x.cuda()).argmax(1) == y.cuda()).sum()  # !
                    # + with torch.no_grad():
                    # +     for x, y in val_loader:
                    # +         correct += (model(x.cuda()).argmax(1) == y.cuda()).sum()
        """),
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

    def may_be_sure(self, file: SourceFile) -> bool:
        return may_be_sure_of_one(file)

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        function = node if isinstance(node, ast.FunctionDef) else None
        found = evaluation_of(function, file)
        if found is None:
            return
        case = found.case
        call = found.first[0]
        within = f"`{function.name}`" if function is not None else "This script"
        remedy, fix = remedy_of(found, function, file)
        passes = [call for call, _ in found.calls]
        total = summed_with_graph(passes, file)
        listed = kept_with_graph(passes, file) if total is None else None
        kept = "each pass keeps its activations for a `backward()` that never comes"
        if total is not None:
            kept += (
                f", and `{file.source(total.target)}` on line {total.lineno} holds on to the graph of every batch, so that memory "
                "grows with their number until it runs out"
            )
        elif listed is not None:
            kept += (
                f", and {quote(file, listed)} on line {listed.lineno} keeps the graph of every batch, so that memory "
                "grows with their number until it runs out"
            )

        def at(call: ast.Call) -> Problem:
            return Problem(
                call,
                f"{within} {case.why}, but autograd records {quote(file, call, 40)}: {kept}. {remedy}.",
                case.confidence,
                found.evidence,
                fix,
                case.loop or function,
                facts=found.facts,
            )

        others = tuple(at(other) for other, _ in found.calls if other is not call)
        yield dataclasses.replace(at(call), elsewhere=others)
