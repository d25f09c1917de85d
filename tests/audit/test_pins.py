"""Which versions a project runs with, wherever it says so; and what a row says of a version that lacks an option."""

from __future__ import annotations

import textwrap

import pytest
from packaging.version import Version

from ptopt.audit.advice import ADVICE, NEEDS
from ptopt.audit.values import Measure, State
from ptopt.inputs.whole import is_read
from ptopt.project.added import ADDED, named_in
from ptopt.project.facts import NO_FACTS, read_facts
from ptopt.project.surroundings import with_surroundings
from tests.audit.conftest import Auditor

ON, OFF, UNKNOWN, NOT_APPLICABLE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE
TRAIN = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU())

        def forward(self, x):
            return self.layers(x)


    def main():
        net = Net().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in DataLoader(data(), num_workers=4):
            loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""
TRAINER = """
    from transformers import AutoModelForMaskedLM, HfArgumentParser, Trainer, TrainingArguments


    def main():
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        model = AutoModelForMaskedLM.from_pretrained("bert-base-uncased")
        Trainer(model=model, args=args, train_dataset=load()).train()


    if __name__ == "__main__":
        main()
"""


def rows(audited: Auditor, files: dict[str, str], script: str = "train.py") -> dict[str, Measure]:
    entry = next(entry for entry in audited(files).entries if entry.path == script)
    return {measure.key: measure for measure in entry.measures}


@pytest.mark.parametrize(
    ("path", "text", "cap"),
    [
        ("README.md", "conda create -n x python=3.7 -y", "1.13.1"),
        ("README.md", "## Requirements\n- Python 3.6\n- CUDA 10", "1.10.2"),
        ("README.md", "1. Install Python 3.8, then run", "2.4.1"),
        ("README.md", "* Python 2.7 (or branch `python3`)\n* PyTorch (branch `pytorch4.1`)", "1.4.0"),
        ("environment.yml", "dependencies:\n  - python=3.7.4\n", "1.13.1"),
        ("docker/environment.yml", "dependencies:\n  - python=3.7\n", "1.13.1"),
        ("Dockerfile", "FROM python:3.8-slim\n", "2.4.1"),
        ("docker/Dockerfile", "FROM nvidia/cuda:11.3\nRUN conda install python=3.7\n", "1.13.1"),
        ("run.sh", "python3.7 train.py --lr 0.1\n", "1.13.1"),
    ],
)
def test_the_python_that_is_asked_for_bounds_torch(audited: Auditor, path: str, text: str, cap: str) -> None:
    found = rows(audited, {"train.py": TRAIN, path: text})
    old = cap < "2"
    assert found["compile"].state is (NOT_APPLICABLE if old else OFF)
    assert found["set_to_none"].state is (NOT_APPLICABLE if cap == "1.4.0" else OFF if old else ON)
    assert found["fused_optimizer"].state is (NOT_APPLICABLE if old else OFF)
    assert (f"which has torch up to {cap}" in found["compile"].detail) is old
    assert found["tf32"].state is {"1.4.0": NOT_APPLICABLE, "1.10.2": ON}.get(cap, OFF)


@pytest.mark.parametrize(
    "text",
    [
        "- Python 3.6+",
        "- Python >= 3.7",
        "- Python 3.7 or later",
        "- Python 3.7-3.11",
        "conda create -n x python=3.10",
        "Tested with python 3.6 and above",
        "We removed python 3.7",
        "Install Python (3.6). It was also run on PyTorch 2.0.",
    ],
)
def test_a_lower_bound_of_python_bounds_nothing(audited: Auditor, text: str) -> None:
    assert rows(audited, {"train.py": TRAIN, "README.md": text})["set_to_none"].state is ON


def test_a_torch_that_is_pinned_says_that_another_python_is_meant(audited: Auditor) -> None:
    files = {
        "train.py": TRAIN,
        "README.md": "conda create -n x python=3.7",
        "requirements.txt": "torch==2.1\n",
    }
    assert rows(audited, files)["set_to_none"].state is ON
    assert rows(audited, {**files, "requirements.txt": "torch>=2.0\n"})["set_to_none"].state is ON
    assert rows(audited, {**files, "requirements.txt": "torch>=1.8\n"})["set_to_none"].state is OFF


def test_the_python_of_a_folder_is_that_of_its_scripts(audited: Auditor) -> None:
    files = {
        "a/train.py": TRAIN,
        "b/train.py": TRAIN.replace("0.1", "0.2"),
        "a/README.md": "conda create -n x python=3.7",
    }
    assert rows(audited, files, "a/train.py")["compile"].state is NOT_APPLICABLE
    assert rows(audited, files, "b/train.py")["compile"].state is OFF


def test_environments_in_folders_of_their_own_are_read() -> None:
    for path, text in (
        ("docker/environment.yml", "dependencies:\n  - pytorch=1.12.1\n"),
        ("envs/environment.yaml", "dependencies:\n  - pytorch=1.12.1\n"),
        ("requirements/cuda118.txt", "torch==1.12.1\n"),
        ("docker/cu116.Dockerfile", "RUN pip install torch==1.12.1+cu116\n"),
    ):
        assert with_surroundings(NO_FACTS, {path: text.encode()}).span("torch") == (
            f"torch==1.12.1{'+cu116' if 'cu116' in path else ''} ({path}:{1 if 'yml' not in path and 'yaml' not in path else 2})"
        )
    for path in ("docs/environment.yml", "docker/test.Dockerfile", "tools/requirements/a.txt"):
        assert not with_surroundings(NO_FACTS, {path: b"RUN pip install torch==1.12.1\n"}).known("torch")


def test_several_images_are_a_range(audited: Auditor) -> None:
    files = {
        "docker/Dockerfile": "FROM nvidia/cuda:10.2\nRUN pip install torch==1.6.0\n",
        "docker/cu116.Dockerfile": "FROM nvidia/cuda:11.6\nRUN pip install torch==1.13.1\n",
    }
    data = {path: text.encode() for path, text in files.items()}
    facts = with_surroundings(read_facts(data), data)
    span = "torch==1.6.0 (docker/Dockerfile:2) to 1.13.1 (docker/cu116.Dockerfile:2)"
    assert facts.span("torch") == span
    assert facts.excludes("torch", "2.0") and not facts.excludes("torch", "1.7")
    assert facts.divided("torch", "1.7") and not facts.divided("torch", "2.0")
    train = TRAIN.replace("DataLoader(data(), num_workers=4):", "epochs(DataLoader(data(), num_workers=4)):")
    found = rows(audited, {"train.py": train, **files})
    assert (found["compile"].state, span in found["compile"].detail) == (NOT_APPLICABLE, True)
    assert found["tf32"].state is UNKNOWN
    assert found["persistent_workers"].state is OFF
    newer = {**files, "docker/cu116.Dockerfile": "RUN pip install torch==2.1.0\n"}
    found = rows(audited, {"train.py": TRAIN, **newer})
    assert found["set_to_none"].state is UNKNOWN
    assert "before 2.0 cannot" in found["compile"].detail


def test_the_torch_beside_a_python_is_read(audited: Auditor) -> None:
    said = "You need python version 3.6.\nInstall PyTorch version 1.7.1, CUDA 11.0"
    found = rows(audited, {"train.py": TRAIN, "README.md": said})
    assert "torch==1.7.1 (README.md:2)" in found["compile"].detail


@pytest.mark.parametrize(
    "said",
    [
        "The code has been tested on PyTorch 1.10.",
        "This codebase has been developed with python version 3.6, PyTorch version 1.10, CUDA 11.0",
        "- Tested with PyTorch 1.10",
        "Requires PyTorch 1.10 (others may work, too)",
    ],
)
def test_what_was_tested_is_no_requirement(audited: Auditor, said: str) -> None:
    audit = audited({"train.py": TRAIN, "README.md": said})
    found = {row.key: row for row in audit.entries[0].measures}
    tested = "; the project names torch 1.10 (README.md:1), and versions before 2.0"
    assert (found["compile"].state, found["compile"].detail) == (OFF, f"nothing is compiled{tested} cannot")
    for key in ("set_to_none", "tf32"):  # it depends on which of them runs
        assert found[key].state is UNKNOWN
        assert found[key].detail.endswith("; the project names torch 1.10 (README.md:1)")
    assert not any("needs torch" in row.detail for row in audit.entries[0].measures)
    older = audited({"train.py": TRAIN, "README.md": said.replace("1.10", "1.7")})
    for actions, needs in ((audit.gaps, ""), (older.gaps, "It needs torch 1.10 or later: ")):
        (action,) = (gap.action for gap in actions if gap.key == "precision")
        assert ("It needs" in action, needs in action) == (bool(needs), True)
    compiled = next(gap for gap in audit.gaps if gap.key == "compile")
    assert compiled.action.endswith(
        "It needs torch 2.0 or later: the project names torch 1.10 (README.md:1)."
    )


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ("- We recommend you to use **`PyTorch >= 1.8.0`**.", "torch>=1.8.0"),
        ("We use pytorch >= 1.7.0\n```\nconda install pytorch==1.7.0\n```", "torch>=1.7.0"),
        ("Tested with PyTorch 1.2 or later.", "torch>=1.2"),
        ("* PyTorch 1.0.0 or 1.1.0\n```\nconda install pytorch=1.1.0\n```", "torch==1.1.0"),
        ("* PyTorch 1.7 or higher\n```\npip install torch==1.7.1\n```", "torch>=1.7"),
        ("pip install torch==1.13.1\n\nCompiling needs PyTorch >= 2.0.", "torch==1.13.1"),
    ],
)
def test_the_oldest_torch_that_a_page_admits(said: str, held: str) -> None:
    for page in ("README.md", "INSTALL.md"):
        data = {page: said.encode()}
        facts = with_surroundings(read_facts(data), data)
        (pin,) = facts.pins["torch"]
        assert (f"torch{pin.specifier}", pin.path) == (held, page)
        assert facts.span("torch") == (f"torch {held[7:]}" if pin.named else held) + f" ({page}:{pin.line})"
        assert pin.named is (">=" in held and "install" in said)


def test_a_build_for_cuda_is_no_later_version(audited: Auditor) -> None:
    found = rows(audited, {"train.py": TRAIN, "README.md": "- pytorch1.6.0+cu101\n"})
    assert "torch==1.6.0 (README.md:1)" in found["compile"].detail


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_an_optimizer_of_a_torch_that_has_no_fused_update_of_it(audited: Auditor, optimizer: str) -> None:
    since = {"Adam": "1.13", "AdamW": "2.0", "SGD": "2.3", "Adagrad": "2.4"}[optimizer]
    code = TRAIN.replace("optim.SGD", f"optim.{optimizer}")
    for version, state in (("1.12", NOT_APPLICABLE), (since, OFF)):
        found = rows(audited, {"train.py": code, "requirements.txt": f"torch=={version}\n"})
        assert found["fused_optimizer"].state is state, version


UNPACKED = """
def make(name, parameters, given):
    options = read(given)
    if name == "adamw":
        return torch.optim.AdamW(parameters, **options)
    if name == "fusedadam":
        return FusedAdam(parameters, **options)

"""


def test_what_is_unpacked_gives_no_fused_update_that_torch_lacks(audited: Auditor) -> None:
    code = textwrap.dedent(TRAIN).replace(
        "torch.optim.SGD(net.parameters(), lr=0.1)", 'make("adamw", net.parameters(), "o.txt")'
    )
    code = code.replace(
        "import torch\n", f"import torch\nfrom apex.optimizers import FusedAdam\n{UNPACKED}", 1
    )
    for version, state in (("1.8", NOT_APPLICABLE), ("2.0", UNKNOWN)):
        found = rows(audited, {"train.py": code, "requirements.txt": f"torch=={version}\n"})
        assert found["fused_optimizer"].state is state, found["fused_optimizer"]


OPTIONS = {
    "tf32": "tf32", "compile": "torch_compile", "gradient_checkpointing": "gradient_checkpointing",
    "persistent_workers": "dataloader_persistent_workers",
}  # fmt: skip


def test_options_that_the_pinned_transformers_lacks_are_not_its_defaults(audited: Auditor) -> None:
    files = {"mlm/train.py": TRAINER, "mlm/README.md": "pip install torch==1.13.1 transformers==4.9.1\n"}
    found = rows(audited, files, "mlm/train.py")
    for key in ("tf32", "gradient_checkpointing"):
        assert found[key].state is OFF
        assert f"(mlm/README.md:1): `{OPTIONS[key]}` came with transformers" in found[key].detail
        assert "default of transformers" not in found[key].detail
    assert (found["fused_optimizer"].state, "its own AdamW" in found["fused_optimizer"].detail) == (NOT_APPLICABLE, True)  # fmt: skip
    assert found["attention"].state is OFF
    newer = rows(audited, {"mlm/train.py": TRAINER, "mlm/README.md": "pip install transformers==4.46.0\n"}, "mlm/train.py")  # fmt: skip
    assert "default of transformers" in newer["tf32"].detail


def test_the_python_bounds_transformers(audited: Auditor) -> None:
    found = rows(audited, {"train.py": TRAINER, "run.sh": "python3.7 train.py --do_train\n"})
    assert found["compile"].state is NOT_APPLICABLE
    assert "python3.7 (run.sh:1), which has torch up to 1.13.1" in found["attention"].detail
    assert "python3.7 (run.sh:1), which has transformers up to 4.30.2" in found["fused_optimizer"].detail
    assert found["persistent_workers"].state is not ON


def test_a_fused_optimizer_is_asked_for_where_the_script_makes_it(audited: Auditor) -> None:
    def action(*codes: str) -> str:
        files = {f"{number}/train.py": code for number, code in enumerate(codes)}
        (found,) = [gap.action for gap in audited(files).gaps if gap.key == "fused_optimizer"]
        return found

    assert action(TRAIN) == "Pass `fused=True` to the optimizer."
    trainer = TRAINER.replace("(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
                                'args = TrainingArguments("out", optim="adamw_torch")')  # fmt: skip
    assert action(trainer) == 'Set `optim="adamw_torch_fused"` in the training arguments.'
    assert action(TRAIN, trainer) == f"{action(TRAIN)} With transformers: {action(trainer)}"


def test_an_argument_that_the_code_gives_stays(audited: Auditor) -> None:
    code = TRAINER.replace(
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
        'args = TrainingArguments("out", tf32=True, optim="adamw_torch_fused")',
    )
    found = rows(audited, {"train.py": code, "requirements.txt": "transformers==4.9.1\ntorch==1.13.1\n"})
    assert (found["tf32"].state, found["fused_optimizer"].state) == (ON, ON)


def test_advice_asks_for_nothing_that_the_pinned_torch_lacks(audited: Auditor) -> None:
    """torch==1.4 fills gradients with zeros and loads ahead, but has no argument that says otherwise."""
    files = {"train.py": TRAIN, "requirements.txt": "torch==1.4.0\n"}
    audit = audited(files)
    found = rows(audited, files)
    for key in ("set_to_none", "persistent_workers", "tf32", "compile"):
        assert found[key].state is NOT_APPLICABLE, key
    assert "torch has `prefetch_factor` since 1.7; the project needs torch==1.4.0" in found["prefetch"].detail
    lacking = [
        added
        for added in ADDED.values()
        if added.package == "torch" and Version(added.version) > Version("1.4")
    ]
    for gap in audit.gaps:
        assert [added.name for added in lacking if added.is_named_in(gap.action)] == [], gap.key


@pytest.mark.parametrize(
    ("pin", "started"),
    [
        ("torch==1.6.0", "started with `python -m torch.distributed.launch`: one process a GPU."),
        ("torch==1.10.0", "started with `torchrun`: one process a GPU."),
        (
            "torch>=1.6",
            "started with `torchrun`: one process a GPU. It needs torch 1.10 or later: torch>=1.6",
        ),
    ],
)
def test_several_processes_are_started_with_what_the_torch_has(
    audited: Auditor, pin: str, started: str
) -> None:
    code = TRAIN.replace("        for x, y in", "        net = nn.DataParallel(net)\n        for x, y in", 1)
    (gap,) = (
        gap
        for gap in audited({"train.py": code, "requirements.txt": f"{pin}\n"}).gaps
        if gap.key == "distributed"
    )
    assert started in gap.action


CHOSEN = """
    from torch.optim import SGD, Adam

    def make_optimizer(parameters, spec):
        return {"sgd": SGD, "adam": Adam}[spec["name"]](parameters, **spec["args"])
"""


def test_no_optimizer_of_an_old_torch_has_a_fused_update(audited: Auditor) -> None:
    """Whichever of a table it is, and where the function that makes it is not read."""
    made = TRAIN.replace("torch.optim.SGD(net.parameters(), lr=0.1)", 'utils.make_optimizer(net.parameters(), spec["optimizer"])')  # fmt: skip
    files = {"train.py": f"    import utils\n{made}", "utils.py": CHOSEN}
    old = rows(audited, {**files, "requirements.txt": "torch==1.6.0\n"})["fused_optimizer"]
    assert old.state is NOT_APPLICABLE and "`Adam` has a fused update since torch 1.13" in old.detail
    assert [str(place) for place in old.evidence] == ["utils.py:5"]
    new = rows(audited, {**files, "requirements.txt": "torch==2.6.0\n"})["fused_optimizer"]
    assert (new.state, new.detail[:17]) == (OFF, "`fused` of `SGD`:")
    unread = {"train.py": made.replace("utils.make_optimizer", "elsewhere.make_optimizer")}
    found = rows(audited, {**unread, "requirements.txt": "torch==1.6.0\n"})["fused_optimizer"]
    assert found.state is NOT_APPLICABLE
    assert "torch has a fused update since 1.13; the project needs torch==1.6.0" in found.detail
    assert rows(audited, unread)["fused_optimizer"].state is UNKNOWN


def test_a_network_that_was_not_seen_has_no_attention_of_a_newer_torch(audited: Auditor) -> None:
    made = TRAIN.replace("Net().cuda()", "zoo.find(name).cuda()").replace("class Net(nn.Module)", "class Data(list)").replace("def forward(", "def get(")  # fmt: skip
    for pin, state in (("torch==1.6.0", NOT_APPLICABLE), ("torch==2.6.0", UNKNOWN)):
        found = rows(audited, {"train.py": made, "requirements.txt": f"{pin}\n"})["attention"]
        assert found.state is state, found.detail
    code = {"train.py": f"    import xformers.ops\n{made}", "requirements.txt": "torch==1.12.0\n"}
    assert rows(audited, code)["attention"].state is UNKNOWN


def test_what_the_pinned_torch_lacks_is_not_off(audited: Auditor) -> None:
    code = TRAIN.replace("nn.Linear(512, 512)", "nn.Conv2d(3, 64, 3)")
    for version, state in (("1.4.0", NOT_APPLICABLE), ("1.6.0", OFF)):
        found = rows(audited, {"train.py": code, "requirements.txt": f"torch=={version}\n"})
        assert (found["precision"].state, found["channels_last"].state) == (state, state)
        assert found["cudnn_benchmark"].state is OFF
    found = rows(audited, {"train.py": code, "requirements.txt": "torch==1.4.0\n"})
    assert "torch has autocast since 1.6; the project needs torch==1.4.0" in found["precision"].detail
    apex = code.replace("def main():", "def main(half=False):").replace(
        "    for x, y in",
        '    if half:\n            amp.initialize(net, optimizer, opt_level="O1")\n        for x, y in',
    )
    apex = "    from apex import amp\n" + apex
    found = rows(audited, {"train.py": apex, "requirements.txt": "torch==1.4.0\n"})
    assert (found["precision"].state, found["precision"].detail[:9]) == (
        OFF,
        "apex.amp,",
    )  # it is there, switched off


def test_what_advice_needs_is_looked_up_where_the_wheels_are_checked() -> None:
    """A measure whose text names something that older libraries lack says so."""
    for key, advice in ADVICE.items():
        stated = {NEEDS.get(key), advice.newer} & set(ADDED)
        named = {name for name in named_in(advice.action) if ADDED[name].package == "torch"}
        assert named <= stated, key
        older = {name for name in named_in(advice.older) if ADDED[name].package == "torch"}
        assert older <= {NEEDS.get(key)}, key


@pytest.mark.parametrize(("version", "name"), [("0.7.5", "32 "), ("2.1.0", "32-true ")])
def test_the_default_precision_has_the_name_of_the_version(audited: Auditor, version: str, name: str) -> None:
    train = """
        import torch
        from torch import nn
        from pytorch_lightning import LightningModule, Trainer


        class System(LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(512, 512)

            def training_step(self, batch, number):
                return self.net(batch).square().mean()


        if __name__ == "__main__":
            Trainer(max_epochs=3).fit(System())
    """
    found = rows(audited, {"train.py": train, "requirements.txt": f"pytorch-lightning=={version}\n"})
    assert f"`precision` is {name}" in found["precision"].detail


def test_what_the_pinned_transformers_lacks_is_an_upgrade_first(audited: Auditor) -> None:
    files = {
        "train.py": TRAINER,
        "run.sh": "python train.py --dataloader_num_workers 4\n",
        "requirements.txt": "transformers==4.31.0\ntorch==2.1.0\n",
    }
    assert "came with transformers 4.36" in rows(audited, files)["persistent_workers"].detail
    actions = {gap.key: gap.action for gap in audited(files).gaps}
    assert actions["attention"].startswith("Use transformers 4.36 or later. Then: ")
    assert actions["persistent_workers"].startswith("Use transformers 4.36 or later. Then: ")
    newer = audited({**files, "requirements.txt": "transformers==4.46.0\ntorch==2.1.0\n"})
    assert all("Use transformers" not in gap.action for gap in newer.gaps)


def test_the_advice_of_an_old_torch_passes_set_to_none(audited: Auditor) -> None:
    audit = audited({"train.py": TRAIN, "requirements.txt": "torch==1.12.0\n"})
    (action,) = [gap.action for gap in audit.gaps if gap.key == "set_to_none"]
    assert "zero_grad(set_to_none=True)" in action and "Drop" not in action


OLD_IMPORT = """
    import torch
    from torch._six import inf


    def norm(parameters):
        return inf
"""


@pytest.mark.parametrize(
    ("files", "old"),
    [
        ({"util/misc.py": OLD_IMPORT, "train.py": "import util.misc as misc\n"}, True),
        ({"util/misc.py": OLD_IMPORT, "train.py": "from util import misc\n"}, True),
        ({"util/misc.py": OLD_IMPORT, "util/other.py": "from .misc import norm\n", "train.py": "from util.other import norm\n"}, True),
        # It is not needed: another module of the repository, under a condition, or where another import follows.
        ({"util/misc.py": OLD_IMPORT}, False),
        ({"util/misc.py": OLD_IMPORT, "train.py": "def old():\n    import util.misc as misc\n"}, False),
        ({"train.py": "try:\n    from torch._six import inf\nexcept ImportError:\n    from math import inf\n"}, False),
        ({"train.py": "from math import inf  # torch._six had it\n"}, False),
        ({"train.py": "from torch._six import inf\n", "requirements.txt": "torch==2.3\n"}, False),  # whatever it means
    ],
)  # fmt: skip
def test_what_newer_versions_lack_bounds_torch_where_it_is_imported(
    audited: Auditor, files: dict[str, str], old: bool
) -> None:
    script = files.pop("train.py", "") + textwrap.dedent(TRAIN)
    audit = audited({**files, "train.py": script})
    found = {measure.key: measure for measure in audit.entries[0].measures}
    assert found["compile"].state is (NOT_APPLICABLE if old else OFF)
    assert found["set_to_none"].state is (OFF if old else ON)
    assert any(gap.key == "compile" for gap in audit.gaps) is not old
    if old:
        assert "`torch._six` (util/misc.py:3), which exists up to torch 1.13.1" in found["compile"].detail
        assert found["tf32"].detail.endswith("torch 1.13.1, and torch 1.7 to 1.11 have it on")


ATTENDS = """
    import math

    import torch
    from torch import nn
    from torch.utils.data import DataLoader


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(512, 1536)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(512)
            return torch.matmul(torch.softmax(scores, dim=-1), v)
"""


def test_advice_for_all_scripts_knows_what_their_imports_bound(audited: Auditor) -> None:
    script = textwrap.dedent(ATTENDS) + textwrap.dedent(TRAIN)[textwrap.dedent(TRAIN).index("\n\ndef main") :]
    assert not audited({"train.py": script}).notes[2:]
    old = audited({"train.py": "from torch._six import inf\n" + script})
    assert not any(gap.key == "attention" for gap in old.gaps)
    needs = "Left out, as the project needs `torch._six` (train.py:1), which exists up to torch 1.13.1: Attention."
    assert needs in old.notes


def test_what_pip_freeze_prints_in_a_page_is_the_torch(audited: Auditor) -> None:
    page = "`pip freeze` returns:\n```\nnumpy==1.18.1\ntorch==1.4.0\ntorchvision==0.5.0\n```\n"
    found = rows(audited, {"train.py": TRAIN, "README.md": page})
    assert "torch==1.4.0 (README.md:4)" in found["compile"].detail
    assert found["set_to_none"].state is NOT_APPLICABLE


def test_an_environment_of_conda_with_a_name_of_its_own_is_read(audited: Auditor) -> None:
    environment = (
        "name: seg\nchannels:\n  - defaults\ndependencies:\n  - python=3.6.7\n  - pip:\n    - torch==1.0.0\n"
    )
    others = {f"a{number}.py": "" for number in range(12)}  # files of the root before it
    said = {"docs/installation.md": "The code is developed using Python 3.6 with PyTorch 1.0.0. Then:\n"}
    found = rows(audited, {"train.py": TRAIN, "seg.yaml": environment, **others, **said})
    assert "torch==1.0.0 (seg.yaml:7)" in found["compile"].detail


def test_the_python_that_code_was_developed_with_bounds_nothing(audited: Auditor) -> None:
    page = "The code is developed using Python 3.6 with PyTorch 1.0.0. Then:\n"
    found = rows(audited, {"train.py": TRAIN, "docs/installation.md": page})
    assert "python=3.6" not in found["compile"].detail


@pytest.mark.parametrize(
    ("line", "bounds"),
    [
        ("print(loss.data[0])", True),
        ("if step % 10 == 0: print(loss.data[0])", True),
        ("print(loss.item() if torch.__version__ > '0.4' else loss.data[0])", False),
        ("print(other.data[0])", False),  # whether that has dimensions is not known
        ("if '0.3' in torch.__version__: print(loss.data[0])", False),
    ],
)
def test_a_loss_that_is_indexed_is_for_an_old_torch(audited: Auditor, line: str, bounds: bool) -> None:
    text = TRAIN.replace("optimizer.step()", f"optimizer.step()\n            {line}")
    found = rows(audited, {"train.py": text})
    said = "`loss.data[0]` (train.py:24), which works up to torch 0.4.1"
    for key in ("compile", "tf32", "persistent_workers"):
        assert (said in found[key].detail) is bounds
    newer = rows(audited, {"train.py": text, "requirements.txt": "torch==1.4"})
    assert said not in newer["compile"].detail
    sized = text.replace("optimizer.zero_grad()", "loss = loss.view(1)\n            optimizer.zero_grad()")
    assert said.replace("24", "25") not in rows(audited, {"train.py": sized})["compile"].detail


def test_a_loss_of_the_script_in_an_imported_module_bounds_nothing(audited: Auditor) -> None:
    other = 'LAST = 1\nif __name__ == "__main__":\n    loss = net(x)\n    loss.backward()\n    print(loss.data[0])\n'
    text = TRAIN.replace("import torch\n", "import torch\n    from other import LAST\n", 1)
    assert "0.4.1" not in rows(audited, {"train.py": text, "other.py": other})["compile"].detail


def test_a_pin_of_the_root_is_narrower_than_a_range_of_a_folder(audited: Auditor) -> None:
    files = {"a/train.py": TRAIN, "requirements.txt": "torch==1.0.0\n", "a/README.md": "- PyTorch >= 0.4\n"}
    assert "torch==1.0.0 (requirements.txt:1)" in rows(audited, files, "a/train.py")["compile"].detail
    newer = {**files, "a/README.md": "- PyTorch >= 2.1\n"}
    assert rows(audited, newer, "a/train.py")["compile"].state is OFF


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (
            "conda-spec-list.txt",
            "@EXPLICIT\nhttps://conda.anaconda.org/pytorch/linux-64/pytorch-1.4.0-py3.6_cuda10.1.243_cudnn7.6.3_0.tar.bz2",
        ),
        ("spec-file.txt", "https://conda.anaconda.org/pytorch/linux-64/pytorch-1.4.0-py3.7_0.conda#0f1e"),
        ("requirements.txt", "# platform: linux-64\nmkl=2020.0=166\npytorch=1.4.0=py3.7_cuda10.1_0"),
        ("requirements.txt", "torch=1.4.0=pypi_0"),
    ],
)
def test_what_conda_list_writes_pins_the_torch(audited: Auditor, path: str, line: str) -> None:
    assert is_read(path)
    table = rows(audited, {"train.py": TRAIN, path: line})
    assert table["compile"].state is NOT_APPLICABLE
    assert f"({path}:" in table["compile"].detail


def test_what_conda_list_writes_of_other_packages_is_no_torch() -> None:
    files = {"conda.txt": b"pytorch-lightning=1.4.0=pypi_0\ncudatoolkit=10.1=0\npytorch_scatter=2.0=py_0\n"}
    assert "torch" not in with_surroundings(read_facts(files), files).pins
