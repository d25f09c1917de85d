from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.autograd._results import around, cuts_of, detach_of
from ptopt.rules.autograd._untrained import is_given_data, untrained
from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.shared.autograd import may_be_off
from ptopt.rules.shared.evaluation import computes_forces, discarded, evaluation_of
from ptopt.rules.shared.graphless import records_nothing
from ptopt.rules.shared.networks import network_method_of, network_of, networks, optimised_in
from ptopt.rules.shared.no_grad import wrap
from ptopt.source.file import remembered
from ptopt.source.index import FUNCTIONS, FunctionNode, own_nodes, walk

_FROZEN_NAME = re.compile(
    r"(^|_)(teacher|target|ref|reference|ema|frozen|old|momentum)(_|$)|(^|_)(tgt|targ)(_|$)", re.I
)


class FrozenForwardRecordsGraph(Rule):
    """A forward pass that nothing is learned through is recorded by autograd.

    ## What it does
    Finds the forward pass of a network (a teacher, a target or a reference network, a generator that is not trained
    in this step) inside training code, all of whose uses go through `.detach()`, and one of a network in evaluation mode
    that is given the batch and is in no optimizer.

    ## Why it is slow
    `.detach()` cuts the graph after it was recorded: the pass has kept all its activations until then, which is
    memory that the trained network needs at the same moment. Under `torch.no_grad()` nothing is kept.

    ## When this is wrong
    When the same `torch.autocast` block also trains this network: autocast keeps the weights that it cast under
    `no_grad` until the block ends, so the later pass would give them no gradients.

    ## Example
    ```python
    teacher_logits = teacher(x)
    loss = F.kl_div(log_probs, F.softmax(teacher_logits / T, dim=-1).detach())
    loss.backward()
    ```

    ## Use instead
    ```python
    with torch.no_grad():
        teacher_logits = teacher(x)
    loss = F.kl_div(log_probs, F.softmax(teacher_logits / T, dim=-1))
    loss.backward()
    ```

    ## Fix safety
    Unsafe: the network must not be trained in the same `torch.autocast` block.

    ## Sources
    - [Autograd mechanics: locally disabling gradient computation](https://docs.pytorch.org/docs/stable/notes/autograd.html)
    """

    id = "PTO502"
    name = "frozen-forward-records-graph"
    family = "autograd"
    severity = Severity.HIGH
    triggers = (".detach()", ".eval()")
    nodes = (ast.Call,)
    when_wrong = (
        "the same `torch.autocast` block also trains this network: autocast reuses the copies of the weights that it made "
        "under `no_grad`, and no gradients reach the weights through them"
    )

    VALID = (
        """
        def distill(student, teacher, loader, optimizer):
            teacher.eval()
            student.train()
            for x in loader:
                loss = F.mse_loss(student(x), teacher(x))
                loss.backward()
                optimizer.step()

        def main(loader):
            large, small = build("large"), build("small")
            large.requires_grad_(False)
            distill(small, large, loader, torch.optim.Adam(small.parameters()))
        """,
        """
        def distill(student, teacher, loader, optimizer):
            teacher.eval()
            student.train()
            for x in loader:
                loss = F.mse_loss(student(x), teacher(x))
                loss.backward()
                optimizer.step()

        def main(loader):
            large, small = build("large"), build("small")
            optimizer = torch.optim.Adam([*small.parameters(), *large.parameters()])
            distill(small, large, loader, optimizer)
        """,
        """
        def build(name):
            network = models.get_model(name, weights="DEFAULT")
            for parameter in network.parameters():
                parameter.requires_grad = False
            return network

        def distill(student, loader):
            teacher = build("large").eval()
            optimizer = torch.optim.Adam(student.parameters())
            for x in loader:
                loss = F.mse_loss(student(x), teacher(x))
                loss.backward()
                optimizer.step()
        """,
        """
        vgg = models.vgg16(weights="DEFAULT").cuda().eval()
        optimizer = torch.optim.Adam(generator.parameters())
        for low, high in loader:
            made = generator(low)
            loss = F.mse_loss(vgg(made), targets[high])  # gradients pass through it
            loss.backward()
            optimizer.step()
        """,
        """
        model.eval()

        def step(model, batch, critic):
            optimizer = torch.optim.Adam(critic.parameters())
            loss = F.mse_loss(critic(batch), model(batch))
            loss.backward()
            optimizer.step()
        """,
        """
        teacher = build(name).eval()
        freeze(teacher)
        optimizer = torch.optim.Adam(student.parameters())
        for x in loader:
            loss = F.mse_loss(student(x), teacher(x))
            loss.backward()
            optimizer.step()
        """,
        """
        teacher.eval()
        optimizer = torch.optim.Adam([*student.parameters(), *teacher.parameters()])
        for x in loader:
            loss = F.mse_loss(student(x), teacher(x))
            loss.backward()
            optimizer.step()
        """,
        """
        for i, (lr, hr) in enumerate(loader):
            loss = criterion(model(lr.cuda()), hr.cuda())
            loss.backward()
            optimizer.step()
            if i % 1000 == 0:
                sr = model(lr.cuda())
                save_image(sr.detach(), f"{i}.png")
        """,
        """
        def train_step(x):
            with torch.no_grad():
                target = teacher(x)
            loss = F.mse_loss(student(x), target.detach())
            loss.backward()
            optimizer.step()
        """,
        """
        for real in loader:
            fake = generator(noise)
            d_loss = F.softplus(discriminator(fake.detach())).mean()
            d_loss.backward()
            d_optimizer.step()
            g_loss = F.softplus(-discriminator(fake)).mean()
            g_loss.backward()
            g_optimizer.step()
        """,
        """
        for x, y in loader:
            out = model(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            correct += (out.detach().argmax(1) == y).sum()
        """,
        """
        teacher.requires_grad_(False)
        for x, y in loader:
            target = teacher(x).detach()
            loss = F.mse_loss(student(x), target)
            loss.backward()
            optimizer.step()
        """,
        """
        class Positions(nn.Module):
            def __init__(self, width):
                super().__init__()
                table = torch.zeros(300, width)
                table[:, 0::2] = torch.sin(torch.arange(300).unsqueeze(1) / 100)
                self.register_buffer("table", table)

            def forward(self, at):
                return self.table[at]

        class Decoder(pl.LightningModule):
            def __init__(self, width):
                super().__init__()
                self.embed = nn.Linear(width, width)
                self.position_encoder = Positions(width)

            def training_step(self, batch, batch_idx):
                place = self.position_encoder(batch.at).to(self.device).detach()
                return F.mse_loss(self.embed(batch.x) + place, batch.y)
        """,
    )
    INVALID = (
        Invalid("""
            def distill(student, teacher, loader, optimizer):
                teacher.eval()
                student.train()
                for x in loader:
                    target = teacher(x)  # !
                    # + with torch.no_grad():
                    # +     target = teacher(x)
                    loss = F.mse_loss(student(x), target)
                    loss.backward()
                    optimizer.step()

            def main(loader):
                large, small = build("large"), build("small")
                distill(small, large, loader, torch.optim.Adam(small.parameters()))
        """),
        Invalid("""
            def train(student, teacher, loader, optimizer):
                teacher.eval()
                student.train()
                for batch in loader:
                    batch = {key: value.cuda() for key, value in batch.items()}
                    loss = F.mse_loss(student(**batch).logits, teacher(**batch).logits)  # !
                    loss.backward()
                    optimizer.step()
        """),
        Invalid("""
            teacher = AutoModelForCausalLM.from_pretrained(name).to(device).eval()
            student = AutoModelForCausalLM.from_pretrained(small).to(device)
            optimizer = torch.optim.AdamW(student.parameters(), lr=2e-5)
            for batch in loader:
                batch = {key: value.to(device) for key, value in batch.items()}
                teacher_logits = teacher(batch["input_ids"], attention_mask=batch["attention_mask"]).logits  # !
                # + with torch.no_grad():
                # +     teacher_logits = teacher(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                loss = distillation_loss(student(**batch).logits, teacher_logits)
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            for x, y in loader:
                logits = teacher(x).logits  # !
                # + with torch.no_grad():
                # +     logits = teacher(x).logits
                loss = F.cross_entropy(student(x), y) + F.kl_div(student(x), F.softmax(logits, dim=-1).detach())
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            class Distill(nn.Module):
                def forward(self, img, labels):
                    teacher_logits = self.teacher(img)  # !
                    # + with torch.no_grad():
                    # +     teacher_logits = self.teacher(img)
                    logits = self.student(img)
                    soft = F.softmax(teacher_logits / self.T, dim=-1).detach()
                    return F.cross_entropy(logits, labels) + F.kl_div(F.log_softmax(logits, dim=-1), soft)
        """),
        Invalid("""
            def learn(self, batch):
                target_q = self.critic_old(batch.obs_next)  # !
                # + with torch.no_grad():
                # +     target_q = self.critic_old(batch.obs_next)
                dev = target_q.device
                target_q = (batch.rew.to(dev) + self.gamma * target_q).detach()
                loss = F.mse_loss(self.critic(batch.obs, batch.act), target_q)
                loss.backward()
                self.optim.step()
        """),
        Invalid("""
            for states, rewards, nexts in loader:
                best = target_net(nexts.to(device)).max(1)[0].detach()  # !
                # + with torch.no_grad():
                # +     best = target_net(nexts.to(device)).max(1)[0].detach()
                loss = F.smooth_l1_loss(policy_net(states.to(device)).max(1)[0], rewards + 0.99 * best)
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not (node.args or node.keywords):
            return
        called = node.func
        if (
            isinstance(called, ast.Name)
            and called.id == "self"
            and file.context.training_step(node) is not None
        ):
            return
        path = network_of(node, file) or network_method_of(node, networks(file).evaluated, file)
        if not path or path in networks(file).frozen or discarded(node, file):
            return
        if any(isinstance(a, ast.Call) and network_of(a, file) for a in around(node, file)):
            return  # the outer call speaks for both
        named = bool(_FROZEN_NAME.search(path.rpartition(".")[2]))
        detached = detach_of(node, file)
        cuts = [detached] if detached is not None else cuts_of(node, file)
        if not cuts and not (network_of(node, file) and is_given_data(node, file)):
            return  # a method of a network may turn autograd off by itself
        if may_be_off(node, file) or computes_forces(file):
            return  # last of these: other files are read for it
        if not cuts:
            yield from _untrained(node, path, named, file)
            return
        if any(_branches(cut, file) != _branches(node, file) for cut in cuts):
            return
        if evaluation_of(file.index.function_of(node), file) is not None:
            return  # the whole function is the business of another rule
        if records_nothing(node, file):
            return
        trains = _trains(node, file, named)
        if trains and file.guards.rare(node) is not None:
            return  # a sample now and then: its graph is one in many
        first = cuts[0]
        where = "right away" if first.lineno == node.lineno else f"at line {first.lineno}"
        yield Problem(
            node,
            f"The graph of {quote(file, node, 40)} is recorded and then thrown away by `.detach()` {where}: until then "
            f"its activations sit in memory. Run `{path}` under `with torch.no_grad():`.",
            0.85 if named and trains else 0.7 if trains else 0.5,
            tuple(Evidence(cut.lineno, "the result is only used detached") for cut in cuts),
            _under_no_grad(node, path, file),
            facts={
                "trains": float(trains),
                "frozen_name": float(named),
                "optimised": float(path in optimised_in(file)),
                "evaluated": float(path in networks(file).evaluated),
            },
        )


def _untrained(node: ast.Call, path: str, named: bool, file: SourceFile) -> Iterator[Problem]:
    """A pass that stays in the graph of the loss, for gradients that no optimizer takes."""
    function = file.index.function_of(node)
    if not named and any(binding.kind == "parameter" for binding in file.bindings.of(function, path)):
        return  # callers may hand over another network than the one of that name
    if file.guards.rare(node) is not None:
        return
    if evaluation_of(function, file) is not None or file.context.grad_off(node):
        return
    found = untrained(path, function, file)
    if found is None or not (named or found.pretrained):
        return  # what it is, and whether its weights need gradients, cannot be told
    yield Problem(
        node,
        f"Autograd records {quote(file, node, 40)}, and `backward()` computes gradients for the weights of `{path}`, "
        f"{found.reason}: its activations and gradients take memory and time for nothing. "
        f"Run `{path}` under `with torch.no_grad():`.",
        found.confidence if named else 0.65,
        fix=_under_no_grad(node, path, file),
        facts={"trains": 1.0, "frozen_name": float(named), "optimised": 0.0, "evaluated": 1.0},
    )


def _under_no_grad(call: ast.Call, path: str, file: SourceFile) -> Fix | None:
    """Put the statement under `no_grad` where nothing else in it, such as the loss, needs its graph."""
    statement = file.index.statement_of(call)
    if not isinstance(statement, ast.Assign):
        return None
    node: ast.AST = call
    cut: ast.AST | None = None  # the outermost `.detach()`: all within it loses its graph anyway
    for ancestor, _ in file.index.ancestors(call):
        if ancestor is statement:
            break
        if isinstance(ancestor, ast.Call) and method_call(ancestor, "detach") is not None:
            cut = ancestor
        node = ancestor
    if node is not cut and not _computes_from_it_alone(call, node, file):
        return None
    return wrap(statement, f"`{path}` is not trained in the same autocast block", file)


def _computes_from_it_alone(call: ast.Call, whole: ast.AST, file: SourceFile) -> bool:
    """Is the result of the call all that `whole` computes with, besides numbers and types?"""
    inside = {*walk(call)}
    above = {call, *(ancestor for ancestor, _ in file.index.ancestors(call))}
    return all(
        part in inside
        or part in above
        or not isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        or file.values.of(part).kind == "number"
        or file.imports.qualified(part) != ""
        or isinstance(file.index.parent(part), ast.Attribute)
        for part in walk(whole)
    )


def _branches(node: ast.AST, file: SourceFile) -> list[ast.AST]:
    """The conditions that `node` stands behind."""
    return [
        a
        for a, child in file.index.ancestors(node)
        if isinstance(a, (ast.If, ast.IfExp)) and child is not a.test
    ]


def _trains(call: ast.Call, file: SourceFile, named: bool) -> bool:
    """Does the pass stand in training code?"""
    if file.context.training_step(call) is not None:
        return True
    function = file.index.function_of(call)
    return isinstance(function, FUNCTIONS) and named and _makes_loss(function)


@remembered
def _makes_loss(function: FunctionNode) -> bool:
    """A forward, or a helper of it, that computes a loss."""
    return "loss" in function.name or any(
        isinstance(n, ast.Name)
        and "loss" in n.id
        or isinstance(n, ast.Attribute)
        and n.attr in ("cross_entropy", "kl_div")
        for n in own_nodes(function)
    )
