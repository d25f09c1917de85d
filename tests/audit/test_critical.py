"""What is called critical: what the documented run of a main script meets, and what costs most of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptopt.audit.critical import is_measure_critical
from ptopt.audit.values import Checked, State
from tests.audit.conftest import Auditor

TRAIN = """\
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
{imports}

class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, at):
        {item}

def evaluate(model, loader):
    model.eval()
    right = 0
    {guard}
    for images, labels in loader:
        right += (model(images.cuda()).argmax(1) == labels.cuda()).sum().item()
    return right

def main(paths):
    model = torchvision.models.resnet50().cuda()
    head = nn.Conv2d(3, 64, 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Pictures(paths), batch_size=32{workers})
    for epoch in range(90):
        for images, labels in loader:
            {before}
            loss = nn.functional.cross_entropy(model(head(images.cuda())), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        evaluate(model, loader)
        torch.save(model.state_dict(), "last.pt")

if __name__ == "__main__":
    main(["a.jpg"])
"""
ITEM = "return torchvision.transforms.functional.to_tensor(Image.open(self.paths[at]).resize((224, 224))), 1"
GUARD = "torch.set_grad_enabled(False)"


def train(
    imports: str = "",
    item: str = ITEM,
    guard: str = GUARD,
    workers: str = ", num_workers=8",
    before: str = "pass",
) -> str:
    return TRAIN.format(imports=imports, item=item, guard=guard, workers=workers, before=before)


def critical(audited: Auditor, files: dict[str, str]) -> set[str]:
    found = audited(files)
    return {gap.key for gap in found.gaps if str(gap.level) == "critical"} | {
        weighed.finding.name for weighed in found.findings if str(weighed.level) == "critical"
    }


def test_decoding_without_workers_is_critical(audited: Auditor) -> None:
    assert critical(audited, {"train.py": train(workers="")}) == {"workers"}


def test_float32_is_never_critical(audited: Auditor) -> None:
    found = audited({"train.py": train()})
    assert [str(gap.level) for gap in found.gaps if gap.key == "precision"] == ["moderate"]
    assert critical(audited, {"train.py": train()}) == set()


def test_workers_are_critical_where_items_are_decoded(audited: Auditor) -> None:
    """Also in a helper that gets an item; not where the items lie in memory."""
    tensors = "return torch.as_tensor(self.paths[at]), 1"
    assert critical(audited, {"train.py": train(item=tensors, workers="")}) == set()
    helper = "return read(self.paths[at]), 1"
    read = "def read(path):\n    return Image.open(path).resize((224, 224))\n"
    assert "workers" in critical(audited, {"train.py": train(imports=read, item=helper, workers="")})


def test_workers_are_critical_where_datasets_are_found_by_name(audited: Auditor) -> None:
    files = {
        "train.py": train(item="return self.paths[at], 1", workers="").replace(
            "Pictures(paths)", "data.create('pictures')"
        ).replace("import torch\n", "import torch\nimport data\n", 1),
        "data/__init__.py": """
            import importlib

            def create(name):
                return vars(importlib.import_module("data." + name + "_set"))[name]()
        """,
        "data/pictures_set.py": """
            from PIL import Image

            class pictures:
                def __getitem__(self, at):
                    return Image.open(f"{at}.jpg").resize((224, 224))
        """,
    }  # fmt: skip
    assert "workers" in critical(audited, files)
    not_all = {
        **files,
        "data/codes_set.py": "class codes:\n    def __getitem__(self, at):\n        return [at]\n",
    }
    assert "workers" not in critical(audited, not_all)  # each of them has to decode
    files["data/pictures_set.py"] = files["data/pictures_set.py"].replace("Image.open", "list")
    assert "workers" not in critical(audited, files)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("train.py", True),
        ("src/train.py", True),
        ("src/package/train.py", True),
        ("examples/train.py", False),
        ("baselines/moon/train.py", False),
        ("src/legacy/train.py", False),
        ("projects/attributes/main.py", False),
        ("toy_train.py", False),
        ("scripts/linear_approximation.py", False),
    ],
)
def test_only_a_main_script_has_something_critical(audited: Auditor, path: str, expected: bool) -> None:
    assert ("workers" in critical(audited, {path: train(workers="")})) is expected


def test_in_a_collection_only_a_script_at_the_top_that_is_started_is_a_main_one(audited: Auditor) -> None:
    many = {f"recipes/r{number}/train.py": train(workers="") for number in range(9)}
    assert critical(audited, many) == set()
    assert critical(audited, {**many, "train.py": train(workers=""), "run.sh": "python train.py\n"}) == {
        "workers"
    }
    folders = {f"subject{number}/main.py": train(workers="") for number in range(9)}
    page = {"README.md": "```\npython subject3/main.py\n```\n"}
    assert critical(audited, {**folders, **page}) == set()


def test_scripts_in_which_a_measure_weighs_less_stand_apart(audited: Auditor) -> None:
    found = audited({"baselines/a.py": train(workers=""), "train.py": train(workers="")})
    gaps = [(str(gap.level), gap.entries) for gap in found.gaps if gap.key == "workers"]
    assert gaps == [("critical", ("train.py",)), ("moderate", ("baselines/a.py",))]
    titles = [step.title for phase in found.plan for step in phase.steps]
    assert len(titles) == len(set(titles))


def test_a_script_far_below_the_others_is_a_side_one(audited: Auditor) -> None:
    found = audited({"src/train.py": train(workers=""), "src/models/judge/train.py": train(workers="")})
    gaps = [(str(gap.level), gap.entries) for gap in found.gaps if gap.key == "workers"]
    assert gaps == [("critical", ("src/train.py",)), ("moderate", ("src/models/judge/train.py",))]


def test_where_some_scripts_are_started_the_others_are_no_main_ones(audited: Auditor) -> None:
    files = {"train.py": train(workers=""), "finetune.py": train(workers="")}
    assert next(g.entries for g in audited(files).gaps if g.key == "workers") == ("finetune.py", "train.py")
    found = audited({**files, "run.sh": "python train.py\n"})
    gaps = [(str(gap.level), gap.entries) for gap in found.gaps if gap.key == "workers"]
    assert gaps == [("critical", ("train.py",)), ("moderate", ("finetune.py",))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.double()", False),
        ("error = images.numpy().astype('float64').mean()", True),
        ("import rdkit", False),
        ("replay_buffer = None", False),
    ],
)
def test_a_metric_in_double_precision_makes_no_small_network(
    audited: Auditor, line: str, expected: bool
) -> None:
    assert ("workers" in critical(audited, {"train.py": train(before=line, workers="")})) is expected


@pytest.mark.parametrize(
    ("pin", "action"),
    [("torch==1.7.1", "GradScaler"), ("torch==2.4.0", "torch.autocast("), ("torch==1.5.1", "")],
)
def test_the_advice_on_precision_is_what_the_pinned_torch_has(
    audited: Auditor, pin: str, action: str
) -> None:
    found = audited({"train.py": train(), "requirements.txt": pin + "\n"})
    gaps = [action in gap.action for gap in found.gaps if gap.key == "precision"]
    assert gaps == ([True] if action else [])


def test_a_model_that_switched_a_row_off_has_read_what_its_words_stand_for(audited: Auditor) -> None:
    (entry,) = audited({"train.py": train()}).entries
    assert not is_measure_critical("workers", entry, [entry])
    rows = tuple(
        replace(row, state=State.OFF, checked=Checked("a model", before=row)) for row in entry.measures
    )
    read = replace(entry, measures=rows)
    assert is_measure_critical("workers", read, [read])
    others = ("precision", "tf32", "compile", "evaluation")
    assert not any(is_measure_critical(key, read, [read]) for key in others)


SAVES = train(before='torch.save(model.state_dict(), "now.pt")')


def test_a_finding_is_critical_where_a_main_script_runs_it(audited: Auditor) -> None:
    name = "synchronous-save-every-step"
    assert name in critical(audited, {"train.py": SAVES})
    assert name not in critical(audited, {"old/train.py": SAVES, "train.py": train()})


def test_anomaly_detection_costs_by_the_operation_and_is_not_critical(audited: Auditor) -> None:
    debugged = train(before="torch.autograd.set_detect_anomaly(True)")
    found = audited({"train.py": debugged})
    assert "anomaly-detection-on" in {weighed.finding.name for weighed in found.findings}
    assert "anomaly-detection-on" not in critical(audited, {"train.py": debugged})


def test_an_evaluation_with_a_graph_is_not_critical(audited: Auditor) -> None:
    """It is a share of the run; and who calls it may switch the graph off where nobody looked."""
    found = audited({"train.py": train(guard="pass")})
    levels = {w.finding.name: str(w.level) for w in found.findings} | {
        g.key: str(g.level) for g in found.gaps
    }
    assert levels.get("evaluation-records-graph", levels.get("evaluation")) == "moderate"


def test_attention_by_hand_is_not_critical(audited: Auditor) -> None:
    """It is worth an afternoon where sequences are long; the table says moderate, too."""
    layer = """
        import torch
        from torch import nn

        class Attention(nn.Module):
            def forward(self, q, k, v):
                weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
                return weights @ v
    """
    code = train(
        imports="from layers import Attention", before="images = Attention()(images, images, images)"
    )
    found = audited({"train.py": code, "layers.py": layer})
    levels = {w.finding.name: str(w.level) for w in found.findings}
    assert levels.get("attention-by-hand", "moderate") == "moderate"
    assert "attention" not in {gap.key for gap in found.gaps if str(gap.level) == "critical"}
