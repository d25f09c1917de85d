"""Trainings that are spread over classes, and what runs beside them: rows that a reader of such a repository found wrong."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Audit, Measure, State
from tests.audit.conftest import Auditor

ON, OFF, UNKNOWN, NONE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE
TRAIN = """\
    import argparse
    import torch
    from loop import Loop
    from network import Network
    from data import loader

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--dataset", default="words")
        args = parser.parse_args()
        Loop(Network(), loader(args.dataset)).run()


    if __name__ == "__main__":
        main()
"""
LOOP = """\
    import torch
    from tqdm import tqdm
    from scaling import Scaling

    class Loop:
        def __init__(self, model, data):
            self.model, self.data = model, data
            self.scaling = Scaling(model)
            self.optimizer = torch.optim.AdamW(self.scaling.parameters)
            self.device = torch.device("cuda")
            self.use_ddp = False

        def run(self):
            for epoch in range(100):
                for batch, cond in tqdm(self.data):
                    batch = batch.to(self.device)
                    cond["y"] = {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in cond["y"].items()}
                    self.run_step(batch, cond)

        def run_step(self, batch, cond):
            self.forward_backward(batch, cond)
            self.scaling.optimize(self.optimizer)

        def forward_backward(self, batch, cond):
            self.scaling.zero_grad()
            for i in range(0, batch.shape[0], 64):
                last = i + 64 >= batch.shape[0]
                if last or not self.use_ddp:
                    losses = self.model(batch, cond)
                else:
                    with self.model.no_sync():
                        losses = self.model(batch, cond)
                self.scaling.backward(losses["loss"].mean())
"""
SCALING = """\
    class Scaling:
        def __init__(self, model):
            self.parameters = list(model.parameters())

        def zero_grad(self):
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.detach_()
                    parameter.grad.zero_()

        def backward(self, loss):
            loss.backward()

        def optimize(self, optimizer):
            optimizer.step()
"""
NETWORK = """\
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, batch, cond):
            return {"loss": self.layer(batch)}
"""
DATA = """\
    from torch.utils.data import DataLoader

    def dataset(name):
        if name == "poses":
            from .poses import Poses
            return Poses()
        from texts import Texts
        return Texts()

    def loader(name):
        return DataLoader(dataset(name), num_workers=4)
"""
FILES = {"train.py": TRAIN, "loop.py": LOOP, "scaling.py": SCALING, "network.py": NETWORK, "data.py": DATA}


def rows(found: Audit, path: str = "train.py") -> dict[str, Measure]:
    (entry,) = [e for e in found.entries if e.path == path]
    return {measure.key: measure for measure in entry.measures}


def test_copies_stand_in_the_loop_from_which_calls_lead_to_the_backward_pass(audited: Auditor) -> None:
    copies = rows(audited(FILES))["non_blocking"]
    assert (copies.state, copies.detail) == (OFF, "copies of the batch wait")
    assert [str(place) for place in copies.evidence] == ["loop.py:16", "loop.py:17"]


def test_copies_of_batches_that_do_not_wait_are_seen_there(audited: Auditor) -> None:
    free = LOOP.replace(".to(self.device)", ".to(self.device, non_blocking=True)")
    pinned = DATA.replace("num_workers=4", "num_workers=4, pin_memory=True")
    assert rows(audited({**FILES, "loop.py": free, "data.py": pinned}))["non_blocking"].state is ON


def test_what_is_copied_before_a_whole_fit_is_copied_on_no_step(audited: Auditor) -> None:
    fit = """\
        import torch
        from torch import nn

        class Fitting:
            def __init__(self):
                self.network = nn.Linear(3, 3)

            def __call__(self, points):
                optimizer = torch.optim.Adam(self.network.parameters())
                for i in range(150):
                    optimizer.zero_grad()
                    loss = (self.network(points) - points).sum()
                    loss.backward()
                    optimizer.step()


        class Fitter:
            def __init__(self):
                self.device = torch.device("cuda")
                self.fitting = Fitting()

            def fit(self, points):
                return self.fitting(torch.Tensor(points).to(self.device))


        if __name__ == "__main__":
            fitter = Fitter()
            for points in clouds:
                fitter.fit(points)
    """
    assert rows(audited({"fit.py": fit}), "fit.py")["non_blocking"].state is NONE


def test_a_module_that_no_default_imports_is_not_missed(audited: Auditor) -> None:
    found = rows(audited(FILES))
    assert found["gradient_checkpointing"].state is OFF
    assert found["distributed"].state is OFF
    assert found["channels_last"].state is NONE
    other = TRAIN.replace('default="words"', 'default="poses"')
    found = rows(audited({**FILES, "train.py": other}))
    assert ".poses" in found["gradient_checkpointing"].detail


def test_an_attribute_that_is_set_to_false_is_false_whatever_the_launcher(audited: Auditor) -> None:
    found = rows(audited(FILES))["accumulation"]
    assert (found.state, found.detail) == (OFF, "`self.model.no_sync`: off")
    asked = LOOP.replace("self.use_ddp = False", "self.use_ddp = torch.cuda.device_count() > 1")
    found = rows(audited({**FILES, "loop.py": asked}))["accumulation"]
    assert found.state is UNKNOWN


def test_a_condition_is_not_named_by_a_variable_of_another_line(audited: Auditor) -> None:
    asked = LOOP.replace("if last or not self.use_ddp:", "if last:")
    found = rows(audited({**FILES, "loop.py": asked}))["accumulation"]
    assert (found.state, found.detail) == (UNKNOWN, "`self.model.no_sync`, if not `last`")


def test_gradients_that_are_filled_by_hand_are_set_to_none_by_hand(audited: Auditor) -> None:
    found = audited(FILES)
    assert rows(found)["set_to_none"].state is OFF
    (gap,) = [gap for gap in found.gaps if gap.key == "set_to_none"]
    assert "set_to_none=True" not in gap.action and "`parameter.grad = None`" in gap.action
    (step,) = [step for phase in found.plan for step in phase.steps if "Gradients set" in step.title]
    assert step.effort == "one line"


@pytest.mark.parametrize(
    ("imported", "call"),
    [("import clip", "clip.tokenize"), ("from clip import clip", "clip.tokenize"), ("import open_clip", "open_clip.tokenize")],
)  # fmt: skip
def test_the_text_of_clip_has_one_length(audited: Auditor, imported: str, call: str) -> None:
    network = NETWORK.replace("import torch\n", f"import torch\n    {imported}\n", 1)
    network = network.replace("self.layer(batch)", f'self.layer(self.text({call}(cond["text"])))')
    found = rows(audited({**FILES, "network.py": network}))["padding"]
    assert (found.state, found.detail) == (NONE, "texts are brought to the one length that the text encoder of CLIP takes")  # fmt: skip


def test_a_tokenizer_that_no_default_makes_leaves_nothing_open(audited: Auditor) -> None:
    train = TRAIN.replace(
        "        Loop(",
        '        if args.dataset == "poses":\n            AutoTokenizer.from_pretrained("x")\n        Loop(',
    )
    assert rows(audited({**FILES, "train.py": train}))["padding"].state is NONE


def test_autotuning_is_no_advice_where_no_convolution_was_seen(audited: Auditor) -> None:
    train = TRAIN.replace("def main():\n", "def main():\n        torch.backends.cudnn.benchmark = False\n")
    found = rows(audited({**FILES, "train.py": train, "network.py": NETWORK.replace("nn.Module", "Base").replace("import torch\n", "import torch\n    from bases import Base\n", 1)}))  # fmt: skip
    assert (found["channels_last"].state, found["cudnn_benchmark"].state) == (UNKNOWN, UNKNOWN)
    convolves = NETWORK.replace("nn.Linear(8, 8)", "nn.Conv2d(8, 8, 3)")
    found = rows(audited({**FILES, "train.py": train, "network.py": convolves}))
    assert found["cudnn_benchmark"].state is OFF


def test_a_line_search_is_advised_no_half_precision(audited: Auditor) -> None:
    loop = """\
        import torch
        from torch import nn

        def main():
            net = nn.Linear(3, 3)
            optimizer = torch.optim.{made}
            for x in batches:
                def closure():
                    optimizer.zero_grad()
                    loss = net(x).sum()
                    loss.backward()
                    return loss
                optimizer.step(closure)


        if __name__ == "__main__":
            main()
    """
    search = audited({"fit.py": loop.replace("{made}", "LBFGS(net.parameters())")})
    assert rows(search, "fit.py")["precision"].state is NONE
    assert not any(gap.key == "precision" for gap in search.gaps)
    assert rows(audited({"fit.py": loop.replace("{made}", "Adam(net.parameters())")}), "fit.py")["precision"].state is OFF  # fmt: skip


def test_the_reason_of_attention_is_that_of_the_plan(audited: Auditor) -> None:
    network = """\
        from torch import nn
        from transformers import AutoModel

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.text = AutoModel.from_pretrained("x")

            def forward(self, batch, cond):
                return {"loss": self.text(batch)}
    """
    files = {**FILES, "network.py": network, "requirements.txt": "torch==1.7.1\ntransformers==4.30.2\n"}
    found = audited(files)
    detail = rows(found)["attention"].detail
    assert detail.startswith("by separate products and softmax: torch has SDPA since 2.0; the project needs torch==1.7.1")  # fmt: skip
    assert any("torch==1.7.1" in note and "Attention" in note for note in found.notes)
    newer = audited({**files, "requirements.txt": "torch==2.1.0\ntransformers==4.30.2\n"})
    assert rows(newer)["attention"].detail.startswith("by separate products and softmax: transformers has SDPA since 4.36")  # fmt: skip


PLATFORMS = """\
    class Platform:
        def report(self, value):
            pass

    class NoPlatform(Platform):
        pass

    class Boards(Platform):
        def __init__(self):
            from torch.utils.tensorboard import SummaryWriter
            self.writer = SummaryWriter()

        def report(self, value):
            self.writer.add_scalar("loss", value)

    class Weights(Platform):
        import wandb

        def __init__(self):
            self.wandb.init(project="x")

        def report(self, value):
            self.wandb.log({"loss": value})
"""


@pytest.mark.parametrize(
    ("chosen", "state", "said"),
    [
        ("NoPlatform", OFF, "TensorBoard, Weights & Biases: off, default of `--platform`"),
        ("Weights", ON, "Weights & Biases"),
        ("Boards", ON, "TensorBoard"),
    ],
)
def test_a_tracker_that_is_chosen_by_its_name_is_the_default_one(
    audited: Auditor, chosen: str, state: State, said: str
) -> None:
    train = TRAIN.replace("import torch\n", "import torch\n    from platforms import *\n", 1)
    train = train.replace(
        "args = parser.parse_args()",
        f'parser.add_argument("--platform", default="{chosen}", choices=["NoPlatform", "Boards", "Weights"])\n'
        "        args = parser.parse_args()\n        platform = eval(args.platform)()\n"
        "        if args.dataset == unknown():\n            platform.report(0)",
    )
    found = audited({**FILES, "train.py": train, "platforms.py": PLATFORMS})
    row = rows(found)["monitoring"]
    assert (row.state, row.detail) == (state, said)
    actions = [gap.action for gap in found.gaps if gap.key == "monitoring"]
    assert all(action.startswith("The code has an option for it, `--platform`") for action in actions)


FIT = """\
    import torch
    from torch import nn
    from bodies import Body

    class Fitting:
        def __init__(self):
            self.body = Body()

        def fit(self, pose, points):
            pose = pose.detach().clone()
            offset = torch.zeros(1, 3).cuda()
            pose.requires_grad = True
            offset.requires_grad = True
            {given}
            for i in range(150):
                optimizer.zero_grad()
                loss = (self.body(pose) + offset - points).norm()
                loss.backward()
                optimizer.step()


    def main():
        Fitting().fit(torch.zeros(1, 72), points)


    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    "given",
    [
        "optimizer = torch.optim.LBFGS([pose, offset])",
        "parameters = [pose, offset]; optimizer = torch.optim.Adam(parameters, lr=0.1)",
        "optimizer = torch.optim.Adam([{'params': [pose], 'lr': 0.1}, {'params': (offset,)}])",
        "optimizer = torch.optim.Adam([pose.requires_grad_()])",
    ],
)
def test_a_script_that_fits_tensors_trains_nothing(audited: Auditor, given: str) -> None:
    found = audited({"fit.py": FIT.replace("{given}", given)})
    assert not found.entries and not found.gaps
    assert found.not_judged == ("fit.py: it fits tensors by their gradients, and trains no network",)


@pytest.mark.parametrize(
    "given",
    [
        "optimizer = torch.optim.Adam(self.body.parameters())",
        "optimizer = torch.optim.Adam([offset, *self.body.parameters()])",
        "parameters = [pose]; parameters.extend(self.body.parameters()); optimizer = torch.optim.Adam(parameters)",
        "offset = nn.Parameter(offset); optimizer = torch.optim.Adam([offset])",
        "parameters = [pose]; parameters += [self.body.weight]; optimizer = torch.optim.Adam(parameters)",
        "optimizer = torch.optim.Adam([pose]); other = FusedAdam(self.body.weights)",
        "optimizer = torch.optim.Adam([self.body.weight])",
    ],
)
def test_one_that_may_fit_a_network_trains(audited: Auditor, given: str) -> None:
    assert [entry.path for entry in audited({"fit.py": FIT.replace("{given}", given)}).entries] == ["fit.py"]


VALIDATES = """\

        def validate(self):
            self.model.eval()
            total = 0
            for batch, cond in self.val_data:
                losses = self.diffusion.losses(self.model, batch.to(self.device))
                total += losses["loss"].mean()
            self.model.train()
            print(total)
"""
EVALUATES = """\
    import torch

    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        for x in loader:
            model(x)
"""


def test_an_evaluation_that_a_finding_shows_in_a_module_is_not_free_of_a_graph(audited: Auditor) -> None:
    step = "                    self.run_step(batch, cond)\n"
    loop = LOOP.replace(
        step,
        step
        + "                    if self.steps % self.every == 0:\n                        self.validate()\n",
    )
    train = TRAIN.replace("import torch\n", "import torch\n    from other import evaluate\n", 1)
    train = train.replace("        Loop(", "        evaluate(Network(), texts)\n        Loop(")
    found = audited({**FILES, "train.py": train, "other.py": EVALUATES, "loop.py": loop + VALIDATES})
    (shown,) = [each for each in found.findings if each.finding.name == "evaluation-records-graph"]
    assert (shown.finding.path, "step" in shown.reason) == ("loop.py", False)
    row = rows(found)["evaluation"]
    assert (row.state, row.detail) == (OFF, "an evaluation records the graph")
    assert not any("Evaluation" in good.title for good in found.good)
    assert rows(audited({**FILES, "train.py": train, "other.py": EVALUATES}))["evaluation"].state is ON


def test_what_a_function_returns_for_a_call_is_given_by_its_key(audited: Auditor) -> None:
    network = NETWORK.replace("def __init__(self):", "def __init__(self, **options):").replace(
        "self.layer =",
        'if options.get("kind", "none") == "text":\n                import open_clip\n'
        "                open_clip.tokenize(names)\n            self.layer =",
    )
    train = TRAIN.replace("Network()", "Network(**arguments(args))").replace(
        "def main", 'def arguments(args):\n        return {"kind": "text", "width": 8}\n\n    def main'
    )
    found = rows(audited({**FILES, "train.py": train, "network.py": network}))["padding"]
    assert found.detail == "texts are brought to the one length that the text encoder of CLIP takes"
    found = rows(audited({**FILES, "network.py": network}))["padding"]
    assert found.detail == "no tokenised text seen"
