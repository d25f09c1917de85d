"""What is critical is most of the cost of what the repository is there for."""

from __future__ import annotations

import pytest

from ptopt.audit.halfprecision import precision_action
from ptopt.project.facts import NO_FACTS
from tests.audit.conftest import Auditor
from tests.audit.test_autocast_obstacles import README, precision
from tests.audit.test_critical import critical, train


def test_a_script_that_measures_a_network_is_no_main_one_beside_a_training(audited: Auditor) -> None:
    files = {"evaluate.py": train(workers=""), "main.py": train(workers="")}
    assert next(
        g.entries for g in audited(files).gaps if g.key == "workers" and str(g.level) == "critical"
    ) == ("main.py",)
    page = {"README.md": "```\npython eval_linear.py\npython train.py\n```\n"}
    assert critical(audited, {"eval_linear.py": train(workers=""), "train.py": train(), **page}) == set()
    assert critical(audited, {"linear_layers_train.py": train(workers="")}) == {"workers"}


@pytest.mark.parametrize("package", ["dm_control", "mujoco", "isaacgym", "robosuite"])
def test_a_simulator_takes_the_time(audited: Auditor, package: str) -> None:
    assert critical(audited, {"train.py": train(imports=f"import {package}", workers="")}) == set()


@pytest.mark.parametrize(
    ("imports", "before", "said"),
    [
        ("", "g = torch.autograd.grad(model(images), images, create_graph=True)", "unscale them first"),
        ("import bmtrain as bmt", "loss = bmt.sum_loss(images)", "`bmtrain` runs the steps"),
    ],
    ids=["gradient penalty", "engine"],
)
def test_mixed_precision_that_asks_for_more_than_autocast_says_so(
    audited: Auditor, imports: str, before: str, said: str
) -> None:
    files = {"train.py": train(imports=imports, before=before), **README}
    assert said in precision(audited, files).action


def test_gradients_of_a_picture_that_nothing_differentiates_are_no_penalty(audited: Auditor) -> None:
    line = "g = torch.autograd.grad(model(images), images)"
    assert "unscale" not in precision(audited, {"train.py": train(before=line), **README}).action


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
    assert precision_action("Cast.", [entry], NO_FACTS) == "Cast."
    files["networks/flow_net.py"] = (
        "import spconv.pytorch as sp\nclass Net:\n    def forward(self, x):\n        return sp.ops.f(x)\n"
    )
    (entry,) = audited(files).entries
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
    two = {f"tuning/{name}/train.py": train(workers="") for name in "ab"}
    assert critical(audited, {**two, **page}) == {"workers"}
    assert critical(audited, {**two, "tuning/c/train.py": train(workers=""), **page}) == set()
