"""What is critical is most of the cost of what the repository is there for."""

from __future__ import annotations

import pytest

from ptopt.audit.halfprecision import may_be_critical, precision_action
from ptopt.project.facts import NO_FACTS
from tests.audit.conftest import Auditor
from tests.audit.test_autocast_obstacles import README, precision
from tests.audit.test_critical import critical, train


def test_a_script_that_measures_a_network_is_no_main_one_beside_a_training(audited: Auditor) -> None:
    files = {"evaluate.py": train(), "main.py": train()}
    assert next(
        g.entries for g in audited(files).gaps if g.key == "precision" and str(g.level) == "critical"
    ) == ("main.py",)
    page = {"README.md": "```\npython eval_linear.py\npython train.py\n```\n"}
    half = train(before="images = images.bfloat16()")
    assert critical(audited, {"eval_linear.py": train(), "train.py": half, **page}) == set()
    assert critical(audited, {"linear_layers_train.py": train()}) == {"precision"}


def test_pictures_of_32_pixels_are_no_main_cost(audited: Auditor) -> None:
    tiny = train(item="return 1, 1", before="data = torchvision.datasets.CIFAR100('.')")
    assert critical(audited, {"train.py": tiny}) == set()
    either = train(before="data = torchvision.datasets.CIFAR100('.')")  # or files that are decoded
    assert critical(audited, {"train.py": either}) == {"precision"}


@pytest.mark.parametrize("package", ["dm_control", "mujoco", "isaacgym", "robosuite"])
def test_a_simulator_takes_the_time(audited: Auditor, package: str) -> None:
    assert critical(audited, {"train.py": train(imports=f"import {package}")}) == set()


@pytest.mark.parametrize(
    ("imports", "before", "said"),
    [
        ("", "g = torch.autograd.grad(model(images), images, create_graph=True)", "unscale them first"),
        ("import bmtrain as bmt", "loss = bmt.sum_loss(images)", "`bmtrain` runs the steps"),
    ],
    ids=["gradient penalty", "engine"],
)
def test_mixed_precision_that_asks_for_more_than_autocast_is_moderate(
    audited: Auditor, imports: str, before: str, said: str
) -> None:
    gap = precision(audited, {"train.py": train(imports=imports, before=before), **README})
    assert str(gap.level) == "moderate"
    assert said in gap.action


def test_gradients_of_a_picture_that_nothing_differentiates_are_no_penalty(audited: Auditor) -> None:
    line = "g = torch.autograd.grad(model(images), images)"
    assert str(precision(audited, {"train.py": train(before=line), **README}).level) == "critical"


def test_kernels_of_networks_that_are_found_by_name_may_be_those_that_run(audited: Auditor) -> None:
    files = {
        "train.py": train(before="images = networks.create('plain')(images)").replace(
            "import torch\n", "import torch\nimport networks\n", 1
        ),
        "networks/__init__.py": """
            import importlib

            def create(name):
                return vars(importlib.import_module("networks." + name + "_net"))["Net"]()
        """,
        "networks/plain_net.py": "class Net:\n    def forward(self, x):\n        return x\n",
        **README,
    }
    (entry,) = audited(files).entries
    assert may_be_critical(entry)
    files["networks/flow_net.py"] = (
        "import spconv.pytorch as sp\nclass Net:\n    def forward(self, x):\n        return sp.ops.f(x)\n"
    )
    (entry,) = audited(files).entries
    assert not may_be_critical(entry)
    said = precision_action("Cast.", [entry], NO_FACTS)
    assert said == (
        "Cast. Of the networks that are found by their names some use `spconv`, which is not known to take half precision: keep it in "
        "float32 there."
    )


def test_a_graph_that_is_kept_is_of_unknown_size(audited: Auditor) -> None:
    """What a backward pass has freed of it, and how many batches there are, is not known."""
    code = (
        train()
        .replace("    for epoch", "    losses = []\n    for epoch")
        .replace("loss.backward()", "loss.backward(retain_graph=True)")
        .replace(
            "            optimizer.step()", "            optimizer.step()\n            losses.append(loss)"
        )
        .replace("        evaluate(model, loader)", "        print(torch.stack(losses).mean())")
    )
    levels = {w.finding.name: str(w.level) for w in audited({"train.py": code}).findings}
    assert levels["metric-keeps-graph"] == "moderate"


def test_scripts_of_one_name_in_folders_of_their_own_are_a_collection(audited: Auditor) -> None:
    page = {
        "README.md": "```\npython tuning/a/train.py\npython tuning/b/train.py\npython tuning/c/train.py\n```\n"
    }
    two = {f"tuning/{name}/train.py": train() for name in "ab"}
    assert critical(audited, {**two, **page}) == {"precision"}
    assert critical(audited, {**two, "tuning/c/train.py": train(), **page}) == set()
