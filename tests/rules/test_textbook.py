"""The textbook case of a rule gets a comment with the weights that ptopt carries, however few examples they were learned from."""

from __future__ import annotations

import difflib
import textwrap

import pytest

from ptopt.change import Change, parse_diff, whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change, review_files
from ptopt.rules import rules
from ptopt.rules.regressions._base import Regression
from ptopt.verify import apply_edits

pytestmark = pytest.mark.usefixtures("learned_ranker")

EVALUATION = """\
import torch


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
    return correct
"""


def comments(base: str, head: str, least: float | None = None, *select: str) -> list[Finding]:
    lines = difflib.unified_diff(base.splitlines(True), head.splitlines(True), "a/train.py", "b/train.py")
    change = parse_diff("".join(lines).encode(), {"train.py": head.encode()}.get)
    return list(
        review_change(
            change,
            config=Config.model_validate({"min-confidence": least, "select": select or ["ALL"]}),
            facts=NO_FACTS,
        ).findings
    )


def proposed(head: str, name: str) -> list[Finding]:
    """What the rule says of the file, whatever the ranker makes of it."""
    review = review_files(
        [whole_file("train.py", head.encode())],
        config=Config.model_validate({"min-confidence": 0}),
        facts=NO_FACTS,
        limit_to_change=False,
        one_per_cause=False,
    )
    return [f for f in review.findings if f.name == name]


IN_PARTS = """\
import torch


def predict_in_parts(model, x, size):
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(size)])


def evaluate(model, loader, size=None):
    model.eval()
    bar = tqdm(loader)
    for x, y in bar:
        x = x.cuda()
        if size is None:
            with torch.no_grad():
                out = model(x)
        else:
            out = predict_in_parts(model, x, size)
        metric.add(out.sub(y).item())
"""


@pytest.mark.parametrize("written", ["out = model(x)", "out = model(x).float()"])
def test_no_grad_is_taken_out_beside_a_function_that_keeps_its_own(written: str) -> None:
    block = "            with torch.no_grad():\n                out = model(x)\n"
    (found,) = comments(IN_PARTS, IN_PARTS.replace(block, f"            {written}\n"))
    assert found.name == "no-grad-removed" and found.span.start == 15


def test_a_decorator_without_grad_covers_what_a_called_function_does_not() -> None:
    head = IN_PARTS.replace("            with torch.no_grad():\n                out =", "            out =")
    (found,) = comments(head.replace("def evaluate", "@torch.no_grad()\ndef evaluate"), head)
    assert found.name == "no-grad-removed"
    head = head.replace("out = model(x)", "out = predict_in_parts(model, x, 1)")
    assert comments(head.replace("def evaluate", "@torch.no_grad()\ndef evaluate"), head) == []


def test_no_grad_around_a_function_that_has_its_own_is_taken_out() -> None:
    wrapped = "            with torch.no_grad():\n                out = predict_in_parts(model, x, size)\n"
    base = IN_PARTS.replace("            out = predict_in_parts(model, x, size)\n", wrapped)
    assert base != IN_PARTS and comments(base, IN_PARTS) == []


def test_no_grad_is_taken_out_of_an_evaluation() -> None:
    head = EVALUATION.replace("@torch.no_grad()\n", "").replace(
        "    correct = 0\n", "    wrong = 0\n    correct = 0\n"
    )
    (found,) = comments(EVALUATION, head)
    assert found.name == "no-grad-removed" and found.span.start == 4, (
        "the definition, not a line that came with it"
    )
    assert found.fix is not None and found.impact
    assert apply_edits(head, found.fix.edits).count("@torch.no_grad()\ndef evaluate") == 1
    assert "takes out `torch.no_grad` here" in found.message


def test_no_grad_is_taken_out_of_code_that_may_want_gradients() -> None:
    base = textwrap.dedent(
        """\
        import torch


        @torch.no_grad()
        def features(encoder, x):
            return encoder(x)
        """
    )
    assert comments(base, base.replace("@torch.no_grad()\n", "")) == []


TRAINING = """\
import torch


def train(model, train_loader, val_loader, optimizer):
    ctx = torch.autocast("cuda", dtype=torch.bfloat16)
    it = iter(val_loader)
    for x, y in train_loader:
        loss = loss_of(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        total = 0

        for x, y in val_loader:
            total += loss_of(model(x.cuda()), y.cuda()).item()
    model.train()
    return total
"""


def without_no_grad(base: str) -> str:
    """`with torch.no_grad():` taken out, and its block moved to the left."""
    before, _, after = base.partition("    with torch.no_grad():\n")
    block, rest = after.split("    model.train()\n")
    return before + textwrap.indent(textwrap.dedent(block), "    ") + "    model.train()\n" + rest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("", "", id="plain"),
        pytest.param(
            "        loss = loss_of(model(x.cuda()), y.cuda())\n",
            "        with ctx:\n            loss = loss_of(model(x.cuda()), y.cuda())\n",
            id="the training pass under a variable",
        ),
        pytest.param(
            "            total += loss_of(model(x.cuda()), y.cuda()).item()\n",
            "            with ctx:\n                total += loss_of(model(x.cuda()), y.cuda()).item()\n",
            id="the evaluation under a variable",
        ),
        pytest.param("in val_loader:", "in it:", id="an iterator"),
        pytest.param("in val_loader:", "in tqdm(it):", id="an iterator, wrapped"),
        pytest.param("    model.eval()\n", "", id="no eval mode, so that the removed line is what tells"),
    ],
)
def test_no_grad_is_taken_out_of_the_evaluation_of_a_training(old: str, new: str) -> None:
    base = TRAINING.replace(old, new) if old else TRAINING
    head = without_no_grad(base)
    (found,) = comments(base, head)
    assert found.name == "evaluation-records-graph" if "model.eval" in base else "no-grad-removed"
    assert found.fix is not None and "    with torch.no_grad():\n        for x, y in" in apply_edits(
        head, found.fix.edits
    )


def test_no_grad_is_taken_out_of_a_pass_that_trains() -> None:
    base = TRAINING.replace(
        "        loss = loss_of(model(x.cuda()), y.cuda())\n",
        "        with torch.no_grad():\n            loss = loss_of(model(x.cuda()), y.cuda())\n",
    )
    head = base.replace(
        "        with torch.no_grad():\n            loss = loss_of(model(x.cuda()), y.cuda())\n",
        "        loss = loss_of(model(x.cuda()), y.cuda())\n",
    )
    assert comments(base, head) == []


def test_a_cache_is_emptied_in_each_step() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion):
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        """
    )
    (found,) = comments(base, base + "        torch.cuda.empty_cache()\n")
    assert found.name == "cache-cleared-every-step"


@pytest.mark.parametrize(
    ("condition", "together"),
    [
        pytest.param("is_update_step", True, id="under the same condition"),
        pytest.param("is_update_step", False, id="under one of its own that says the same"),
        pytest.param("(i + 1) % 4 == 0", True, id="a count"),
    ],
)
def test_a_cache_is_emptied_as_often_as_the_optimizer_steps(condition: str, together: bool) -> None:
    base = textwrap.dedent(
        f"""\
        import torch


        def train(model, loader, optimizer, criterion, every):
            for i, (x, y) in enumerate(loader):
                is_update_step = (i + 1) % every == 0
                criterion(model(x.cuda()), y.cuda()).backward()
                if {condition}:
                    optimizer.step()
                    optimizer.zero_grad()
        """
    )
    own = "" if together else f"        if {condition}:\n"
    (found,) = comments(base, f"{base}{own}            torch.cuda.empty_cache()\n")
    assert found.name == "cache-cleared-every-step"


def test_a_cache_is_emptied_now_and_then() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion, every):
            for i, (x, y) in enumerate(loader):
                criterion(model(x.cuda()), y.cuda()).backward()
                optimizer.step()
        """
    )
    head = f"{base}        if i % every == 0:\n            torch.cuda.empty_cache()\n"
    assert comments(base, head) == []


LOADED = """\
import torch
from torch.utils.data import DataLoader


def train(model, dataset, val_dataset, optimizer):
    train_loader = DataLoader(
        dataset,
        batch_size=32,
        num_workers=3,
        pin_memory=True,
    )
    val_loader = DataLoader(
        val_dataset,
        batch_size=32,
        num_workers=1,
        pin_memory=True,
    )
    for x, y in train_loader:
        loss = loss_of(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return val_loader
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("num_workers=3", "num_workers=0", "workers-removed"),
        ("num_workers=1", "num_workers=0", "workers-removed"),
        (
            "        num_workers=3,\n        pin_memory=True",
            "        num_workers=3,\n        pin_memory=False",
            "pinning-removed",
        ),
    ],
)
def test_a_change_switches_off_what_feeds_a_training(old: str, new: str, rule: str) -> None:
    (found,) = comments(LOADED, LOADED.replace(old, new))
    assert found.name == rule and found.right is not None and found.right >= 0.9


CONTINUED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

import datasets


def make_loader(spec, tag):
    dataset = datasets.make(spec["dataset"])
    loader = DataLoader(dataset, batch_size=spec["batch_size"],
        shuffle=(tag == "train)"), num_workers=8, pin_memory=True)
    return loader


def train(spec, model, optimizer):
    for x, y in make_loader(spec, "train"):
        loss = loss_of(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
FIRST_LINE = '    loader = DataLoader(dataset, batch_size=spec["batch_size"],\n'
LAST_LINE = '        shuffle=(tag == "train)"), num_workers=8, pin_memory=True)\n'


@pytest.mark.parametrize("first", [FIRST_LINE, FIRST_LINE.replace("loader", "batches")])
@pytest.mark.parametrize(
    "last",
    [
        "        shuffle=True, num_workers=0, pin_memory=True)\n",
        '        shuffle=(tag == "train)"), num_workers=0)\n',
        "        num_workers=0, drop_last=True)\n",
        '        shuffle=(tag == "train)"), pin_memory=True)\n',
        '        shuffle=(tag == "train)"))\n',
        "        shuffle=True)\n",
        "",
    ],
)
def test_workers_go_with_any_edit_of_their_call(first: str, last: str) -> None:
    if not last:
        first = f"{first.rstrip()[:-1]})\n"
    (found,) = comments(CONTINUED, CONTINUED.replace(FIRST_LINE + LAST_LINE, first + last))
    assert found.name == "workers-removed" and "`num_workers=8`" in found.message
    assert found.right is not None and found.right >= 0.9


@pytest.mark.parametrize(
    "written",
    [
        "    loader = DataLoader(other(spec), batch_size=64)\n",  # its items may be others, too
        "    loader = DataLoader(TensorDataset(dataset.x, dataset.y), batch_size=64)\n",
        "    loader = DataLoader(dataset, **spec.options)\n",
        "    loader = DataLoader(dataset, 64, False, None, None, spec.workers)\n",
        "    loader = dataset.batches(shuffle=True)\n",
    ],
)
def test_workers_that_a_call_may_still_have_or_need_no_more_are_no_comment(written: str) -> None:
    assert comments(CONTINUED, CONTINUED.replace(FIRST_LINE + LAST_LINE, written)) == []


def test_items_that_lie_on_the_device_need_no_workers() -> None:
    base = CONTINUED.replace('datasets.make(spec["dataset"])', "datasets.make(spec, device=spec.device)")
    for last in ("        num_workers=0)\n", "        shuffle=True)\n"):
        assert comments(base, base.replace(LAST_LINE, last)) == []


def test_workers_lead_where_a_change_takes_out_pinning_too() -> None:
    old = "num_workers=3,\n        pin_memory=True"
    (found,) = comments(LOADED, LOADED.replace(old, "num_workers=0,\n        pin_memory=False"))
    assert found.name == "workers-removed"


def test_what_a_change_shows_is_true_although_it_is_no_comment() -> None:
    """Of pinning, where each copy waits anyway, and for an evaluation, readers said that it is true but trivial."""
    waits = LOADED.replace("non_blocking=True", "")
    for base, old, new in (
        (waits, "num_workers=3,\n        pin_memory=True", "num_workers=3,\n        pin_memory=False"),
        (LOADED, "num_workers=1,\n        pin_memory=True", "num_workers=1,\n        pin_memory=False"),
    ):
        assert comments(base, base.replace(old, new)) == []
        (found,) = comments(base, base.replace(old, new), 0.0, "regressions")
        assert found.family == "regressions" and found.right is not None and found.right >= 0.9


@pytest.mark.parametrize(
    ("update", "made"),
    [
        ("p.data = p.data * m + q.data * (1 - m)", "two temporary tensors, and a third for the result,"),
        ("p.data.copy_(p.data * m + q.data * (1 - m))", "three temporary tensors"),
    ],
)
def test_what_an_average_allocates_is_temporary_where_it_is_copied(update: str, made: str) -> None:
    pairs = "for p, q in zip(teacher.parameters(), student.parameters()):"
    code = f"import torch\n\n\ndef f(teacher, student, m):\n    {pairs}\n        {update}\n"
    (found,) = proposed(code, "ema-update-allocates")
    assert f"This makes {made} for each parameter" in found.message


def test_losses_are_kept_with_their_graphs() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion):
            losses = []
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return losses
        """
    )
    head = base.replace(
        "        optimizer.step()\n", "        optimizer.step()\n        losses.append(loss)\n"
    )
    (found,) = proposed(head, "metric-keeps-graph")
    assert found.severity == "low" and found.stated == 0.6
    (found,) = proposed(head.replace(".backward()", ".backward(retain_graph=True)"), "metric-keeps-graph")
    assert found.severity == "high" and found.stated == 0.9


def test_an_evaluation_keeps_the_graphs_of_all_batches() -> None:
    base = textwrap.dedent(
        """\
        import torch
        import torch.nn.functional as F

        def evaluate(model, loader):
            model.eval()
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                losses.append(loss)
            return torch.stack(losses).mean().item()
        """
    )
    (found,) = proposed(base, "metric-keeps-graph")
    assert found.severity == "high" and found.stated == 0.9


SUMS_WITH_GRAPH = """\
import torch
import torch.nn.functional as F

def validate(model, loader, device):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += F.cross_entropy(model(x.to(device)), y.to(device))
    return total / len(loader)

def main(model, loader, device, optimizer):
    loss = validate(model, loader, device)
"""


def test_an_evaluation_returns_a_sum_of_all_graphs() -> None:
    (found,) = proposed(SUMS_WITH_GRAPH + "    print(loss)\n", "evaluation-records-graph")
    assert found.stated == 0.9
    assert not proposed(SUMS_WITH_GRAPH + "    loss.backward()\n", "evaluation-records-graph")


TRAINER = """\
import torch
from transformers import Trainer


class OurTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.losses = []

    def training_step(self, model, inputs):
        loss = self.compute_loss(model, inputs)
        self.accelerator.backward(loss)
        return loss.detach()

    @torch.no_grad()
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        model.eval()
        outputs = [model(**part) for part in inputs]
        return None, [out.logits.argmax(-1).cpu() for out in outputs], None
"""


def test_losses_are_kept_in_an_attribute_that_is_never_emptied() -> None:
    head = TRAINER.replace(
        "    return loss.detach()", "    self.losses.append(loss)\n        return loss.detach()"
    )
    (found,) = proposed(head, "metric-keeps-graph")
    assert (found.severity, found.stated) == ("low", 0.6)


def test_no_grad_is_taken_out_of_the_hook_of_a_trainer() -> None:
    assert comments(TRAINER, TRAINER.replace("    @torch.no_grad()\n", ""))


def test_a_cache_that_is_emptied_in_a_try_is_emptied_in_each_step() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion):
            for x, y in loader:
                try:
                    loss = criterion(model(x.cuda()), y.cuda())
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                except RuntimeError:
                    print("out of memory")
        """
    )
    line = "            torch.cuda.empty_cache()\n"
    (found,) = comments(base, base.replace("        except", f"{line}        except"))
    assert found.name == "cache-cleared-every-step"
    assert comments(base, base.replace('print("out of memory")\n', f'print("out of memory")\n{line}')) == []


STEPS = """\
import torch


def train(model, loader, optimizer, criterion, log):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    "line",
    [
        "        log({n: p.grad.norm().item() for n, p in model.named_parameters()})\n",
        "        for p in model.parameters():\n            log(p.grad.norm().item())\n",
    ],
)
def test_a_number_of_each_parameter_is_read_in_each_step(line: str) -> None:
    head = STEPS.replace("        optimizer.step()\n", f"{line}        optimizer.step()\n")
    (found,) = comments(STEPS, head)
    assert found.name == "item-every-step" and "for each parameter" in found.message
    assert "0 to 2 %" not in found.message


def test_a_number_of_each_parameter_is_read_now_and_then() -> None:
    base = STEPS.replace("for x, y in loader:", "for step, (x, y) in enumerate(loader):")
    lines = "        if step % 100 == 0:\n            for p in model.parameters():\n                log(p.grad.norm().item())\n"
    assert (
        comments(base, base.replace("        optimizer.step()\n", f"{lines}        optimizer.step()\n")) == []
    )


def test_anomalies_are_looked_for_in_every_run() -> None:
    base = STEPS + "\n\nif __name__ == '__main__':\n    train(*sys.argv)\n"
    head = base.replace("    train(*", "    torch.autograd.set_detect_anomaly(True)\n    train(*")
    (found,) = comments(base, head)
    assert found.name == "anomaly-detection-on"
    guarded = base.replace(
        "    train(*", "    if args.debug:\n        torch.autograd.set_detect_anomaly(True)\n    train(*"
    )
    assert comments(base, guarded) == []


def test_no_grad_that_goes_with_the_loop_is_said_once() -> None:
    head = EVALUATION.replace("@torch.no_grad()\n", "").replace(
        "correct += (model(x)", "correct += (model(x.cuda())"
    )
    (found,) = comments(EVALUATION, head)
    assert found.name == "evaluation-records-graph"


BY_METHOD = """\
import torch


@torch.no_grad()
def evaluate(data_loader, model, device):
    model.eval()
    total = 0.0
    for batch in data_loader:
        images = batch[0].to(device, non_blocking=True)
        latent, mask, ids = model.forward_encoder(images, 0.75)
        total += latent.mean().item()
    return total / len(data_loader)
"""


@pytest.mark.parametrize(
    "run",
    [
        "model.forward_encoder",
        "model.module.forward_encoder",
        "model.module.forward_features",
        "model.encoder",
    ],
)
def test_an_evaluation_runs_a_part_or_another_method_of_the_network(run: str) -> None:
    """What is in eval mode as a whole is so in its parts."""
    base = BY_METHOD.replace("model.forward_encoder", run)
    head = base.replace("@torch.no_grad()\n", "").replace("total / len", "(total + 0) / len")
    (found,) = proposed(head, "evaluation-records-graph")
    assert found.stated == 0.9 and found.span.start == 9
    assert [f.name for f in comments(base, head)] == ["no-grad-removed"]
    assert not proposed(base, "evaluation-records-graph")


def test_a_method_that_turns_autograd_off_itself_is_left_alone() -> None:
    head = BY_METHOD.replace("@torch.no_grad()\n", "") + textwrap.dedent(
        """

        class Net(torch.nn.Module):
            @torch.no_grad()
            def forward_encoder(self, x, ratio):
                return self.encoder(x), None, None
        """
    )
    assert not proposed(head, "evaluation-records-graph")


def test_images_are_decoded_between_the_steps() -> None:
    base = "import torch\nimport torchvision\n"
    head = base + textwrap.dedent(
        """\


        def get_data(args):
            transforms = torchvision.transforms.Compose([torchvision.transforms.Resize(80), torchvision.transforms.ToTensor()])
            dataset = torchvision.datasets.ImageFolder(args.dataset_path, transform=transforms)
            return torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
        """
    )
    (found,) = comments(base, head)
    assert found.name == "loader-without-workers"
    assert comments(base, head.replace("shuffle=True", "shuffle=True, num_workers=args.workers")) == []
    assert (
        comments(base, head.replace("datasets.ImageFolder(args.dataset_path", 'datasets.CIFAR10("."')) == []
    )


def test_a_model_is_loaded_in_the_handler_of_a_request() -> None:
    base = "import torch\nfrom fastapi import FastAPI\n\napp = FastAPI()\nmodel = torch.hub.load('facebookresearch/dino:main', 'dino_vits8')\n"
    handler = (
        "\n\n@app.post('/embed')\ndef embed(image: list):\n    return model(torch.tensor(image)).tolist()\n"
    )
    load = "    model = torch.hub.load('facebookresearch/dino:main', 'dino_vits8')\n"
    (found,) = comments(base, base + handler.replace("    return", load + "    return"))
    assert found.name == "weights-loaded-per-request"
    assert comments(base, base + handler) == []


def test_a_breakpoint_is_left_in_a_forward() -> None:
    base = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return self.layer(x)\n"
    (found,) = comments(base, base.replace("        return", "        breakpoint()\n        return"))
    assert found.name == "breakpoint-left" and found.fix is not None
    assert (
        comments(
            base,
            base.replace(
                "        return", "        if self.debug:\n            breakpoint()\n        return"
            ),
        )
        == []
    )


def test_prompts_are_padded_to_a_fixed_length() -> None:
    base = "import torch\n\n\ndef answer(model, tokenizer, prompts):\n    inputs = tokenizer(prompts, padding=True, return_tensors='pt')\n"
    base += "    return model.generate(**inputs.to('cuda'))\n"
    (found,) = comments(base, base.replace("padding=True", 'padding="max_length", max_length=2048'))
    assert found.name == "padded-to-maximum" and found.fix is not None


def test_a_block_with_weights_is_built_in_a_forward() -> None:
    base = "import torch\nfrom torch import nn\n\n\nclass Gate(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    base += "        self.fc = nn.Linear(dim, dim)\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return self.layer(x)\n"
    (found,) = comments(
        base, base.replace("        return self", "        x = Gate(x.shape[1])(x)\n        return self")
    )
    assert found.name == "module-built-in-forward"


def test_a_tensor_is_built_from_tensors_in_each_step() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer):
            for x, y in loader:
                probs = torch.softmax(model(x.cuda(non_blocking=True)), -1)
                loss = criterion(probs, y)
                loss.backward()
                optimizer.step()
        """
    )
    box = "        box = torch.tensor([probs.min(), probs.max()], device=probs.device)\n"
    head = base.replace("        loss = criterion(probs, y)", f"{box}        loss = criterion(probs, y, box)")
    (found,) = comments(base, head)
    assert found.name == "tensor-of-tensors"


def test_an_evaluation_that_also_keeps_its_losses_has_the_fix() -> None:
    """Two rules blame it, and one decorator helps both: the comment keeps its suggestion."""
    code = """
        import torch
        import torch.nn.functional as F

        def evaluate(model, loader, device):
            model.eval()
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                losses.append(loss)
            return torch.stack(losses).mean().item()
    """
    head = textwrap.dedent(code).encode()
    config = Config().model_copy(update={"select": ("PTO501", "PTO503"), "min_confidence": 0.0})
    change = Change((whole_file("train.py", head),), ())
    (finding,) = review_change(change, config=config, facts=NO_FACTS).findings
    assert {place.rule for place in finding.places()} == {"PTO501", "PTO503"}
    assert finding.fix is not None and "@torch.no_grad()" in finding.fix.edits[0].replacement


def test_an_evaluation_that_keeps_its_graphs_leads_a_training_that_keeps_freed_ones() -> None:
    code = """
        import torch
        import torch.nn.functional as F

        def train(model, loader, optimizer):
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss)
            return losses

        def evaluate(model, loader):
            model.eval()
            losses = []
            for x, y in loader:
                loss = F.cross_entropy(model(x.cuda()), y.cuda())
                losses.append(loss)
            return torch.stack(losses).mean().item()
    """
    config = Config().model_copy(update={"select": ("PTO503",), "min_confidence": 0.0})
    file = whole_file("train.py", textwrap.dedent(code).encode())
    (finding,) = review_files([file], config=config, facts=NO_FACTS, limit_to_change=False).findings
    assert finding.severity == "high" and finding.symbol == "evaluate"
    assert [(place.severity, place.span.start) for place in finding.also] == [("low", 12)]


def test_the_value_of_an_option_that_is_taken_out_is_shown_whole() -> None:
    base = """\
from os import cpu_count

from torch.utils.data import DataLoader


def loaders(dataset):
    dl = DataLoader(dataset, batch_size = 8, shuffle = True, num_workers = cpu_count())
    return dl
"""
    head = base.replace("num_workers = cpu_count()", "num_workers = 0")
    (found,) = [f for f in comments(base, head, 0.0) if f.name == "workers-removed"]
    assert "takes out `num_workers = cpu_count()` here" in found.message


SCALED = """\
import logging

import torch

def train_model(net, loader, val_loader, optimizer, criterion, amp):
    net = net.to("cuda")
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    logging.info(f"Mixed precision: {amp}")
    for step, (x, y) in enumerate(loader):
        with torch.autocast("cuda", enabled=amp):
            out = net(x.to("cuda"))
            loss = criterion(out, y.to("cuda"))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 1000 == 0:
            evaluate(net, val_loader, amp)


@torch.no_grad()
def evaluate(net, loader, amp):
    with torch.autocast("cuda", enabled=amp):
        return sum(net(x.to("cuda")).mean() for x, _ in loader).item()
"""


def test_autocast_is_taken_out_of_steps_that_still_scale_their_loss() -> None:
    head = SCALED.replace(
        """        with torch.autocast("cuda", enabled=amp):
            out = net(x.to("cuda"))
            loss = criterion(out, y.to("cuda"))
""",
        """        out = net(x.to("cuda"))
        loss = criterion(out, y.to("cuda"))
""",
    )
    (found,) = [f for f in comments(SCALED, head) if f.name == "autocast-removed"]
    assert head.splitlines()[found.span.start - 1].strip() == 'out = net(x.to("cuda"))'
    network = """\

class Net(torch.nn.Module):
    @torch.autocast("cuda")
    def forward(self, x):
        return self.layers(x)
"""
    assert "autocast-removed" not in {f.name for f in comments(SCALED + network, head + network)}


def test_the_page_of_a_rule_about_a_removed_measure_says_whether_it_offers_a_fix() -> None:
    removed = [rule for rule in rules() if isinstance(rule, Regression)]
    offering = {rule.name for rule in removed if type(rule).fix is not Regression.fix}
    assert offering == {
        rule.name for rule in removed if not rule.sections()["Fix safety"].startswith("No fix")
    }
    assert "no-grad-removed" in offering
