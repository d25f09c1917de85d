"""Advice on mixed precision that holds for the code and the GPUs of the training it speaks of."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Gap
from tests.audit.conftest import Auditor
from tests.audit.test_critical import critical, train

README = {"README.md": "Train it:\n```\npython train.py\n```\n"}


def precision(audited: Auditor, files: dict[str, str]) -> Gap:
    (gap,) = (gap for gap in audited(files).gaps if gap.key == "precision")
    return gap


@pytest.mark.parametrize(
    "line",
    [
        "loss = nn.BCELoss()(images.sigmoid(), labels)",
        "loss = nn.functional.binary_cross_entropy(images.sigmoid(), labels)",
    ],
)
def test_a_loss_of_probabilities_is_changed_first(audited: Auditor, line: str) -> None:
    gap = precision(audited, {"train.py": train(before=line), **README})
    assert "raises under autocast" in gap.action and "BCEWithLogitsLoss" in gap.action
    assert len(gap.evidence) == 2  # the loop, and the line of the loss
    logits = train(before="loss = nn.functional.binary_cross_entropy_with_logits(images, labels)")
    assert "raises" not in precision(audited, {"train.py": logits, **README}).action


@pytest.mark.parametrize(
    ("pin", "form"), [("==1.11.0", "float16"), (">=1.11", "bfloat16"), ("==2.1", "bfloat16")]
)
def test_before_torch_2_convolutions_in_bfloat16_are_slow(audited: Auditor, pin: str, form: str) -> None:
    gap = precision(audited, {"train.py": train(), "requirements.txt": f"torch{pin}\n", **README})
    assert f"dtype=torch.{form})" in gap.action
    assert ("GradScaler" in gap.action) is (form == "float16")


def test_a_loss_of_probabilities_that_nothing_reads_is_none(audited: Auditor) -> None:
    layer = """
        from torch import nn

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.bce = nn.BCELoss()

            def forward(self, x):
                return {}
    """
    files = {"train.py": train(imports="import layers", before="images = layers.Layer()(images)"), **README}
    assert "raises" in precision(audited, {**files, "layers.py": layer.format("self.bce(x, x)")}).action
    assert "raises" not in precision(audited, {**files, "layers.py": layer.format("x")}).action


def test_the_threads_of_data_parallel_do_not_take_the_dtype_over(audited: Auditor) -> None:
    gap = precision(audited, {"train.py": train(before="model = nn.DataParallel(model)"), **README})
    assert "inside the network's `forward`" in gap.action
    either = "model = nn.DataParallel(model) if paths else nn.parallel.DistributedDataParallel(model)"
    assert "forward`" not in precision(audited, {"train.py": train(before=either), **README}).action


@pytest.mark.parametrize(
    ("imports", "line", "named"),
    [
        ("", "images = torch.fft.rfftn(images).real", "`torch.fft.rfftn`"),
        ("import spconv.pytorch as spconv", "images = spconv.SubMConv3d(3, 3, 3)(images)", "`spconv`"),
        ("import correlation_cuda", "images = correlation_cuda.forward(images)", "`correlation_cuda`"),
        (
            "from torch.utils import cpp_extension\nkernel = cpp_extension.load('psa', ['psa.cu'])",
            "images = kernel.forward(images)",
            "`psa`",
        ),
        ("import my_kernels", "images = my_kernels.forward(images)", "`my_kernels`"),
    ],
)
def test_what_is_not_known_to_take_half_precision_stays_in_float32(
    audited: Auditor, imports: str, line: str, named: str
) -> None:
    setup = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('my_kernels', ['a.cu'])\n"
    files = {"train.py": train(imports=imports, before=line), "setup.py": setup, **README}
    gap = precision(audited, files)
    assert f"Keep {named} in float32" in gap.action and "enabled=False" in gap.action


def test_compiled_code_of_torch_knows_autocast(audited: Auditor) -> None:
    line = "torch._C._jit_set_profiling_mode(False)"
    assert "Keep" not in precision(audited, {"train.py": train(before=line), **README}).action


def test_a_kernel_that_another_network_uses_is_none_of_this_one(audited: Auditor) -> None:
    other = "import correlation_cuda\ndef flow(x):\n    return correlation_cuda.forward(x)\n"
    files = {"train.py": train(imports="import layers"), "layers.py": other, **README}
    assert "Keep" not in precision(audited, files).action
    files["train.py"] = train(imports="import layers", before="images = layers.flow(images)")
    assert "Keep `correlation_cuda`" in precision(audited, files).action


@pytest.mark.parametrize("line", ["labels = Variable(labels, volatile=True)", "print(loss.data[0])"])
def test_code_of_an_old_torch_moves_first(audited: Auditor, line: str) -> None:
    gap = precision(audited, {"train.py": train(before=line), **README})
    assert gap.action.startswith("First move to torch 1.10 or later")


def test_a_comment_is_no_code_of_an_old_torch(audited: Auditor) -> None:
    code = train(before="pass  # loss.data[0]")
    assert "First move" not in precision(audited, {"train.py": code, **README}).action


def test_a_gpu_that_some_scripts_name_is_spoken_of_for_these(audited: Auditor) -> None:
    page = "```\npython a/train.py\npython b/train.py\n```\n"
    files = {
        "a/train.py": train(),
        "b/train.py": train(),
        "README.md": page,
        "b/README.md": "On a V100.\n```\npython train.py\n```",
    }
    action = precision(audited, files).action
    assert "dtype=torch.bfloat16" in action and "In b/train.py: On V100 use float16" in action


def test_an_environment_of_an_old_torch_moves_first(audited: Auditor) -> None:
    files = {"train.py": train(), "train.sh": "source activate pytorch1.4.0\npython train.py\n"}
    assert precision(audited, files).action.startswith("First move to torch 1.10 or later:")
    files["train.sh"] = "source activate pytorch2.4.0\npython train.py\n"
    assert "First move" not in precision(audited, files).action


@pytest.mark.parametrize(
    ("page", "float16", "expected"),
    [
        ("We train on 4 V100 GPUs.", True, ""),
        ("Trained with an RTX 2080 Ti.", True, ""),
        ("We train on 8 A100.", False, ""),
        ("4 V100, or 8 A100 for the large one.", False, "On V100 use float16"),
        ("A GTX 1080 Ti is enough.", True, "hardly time"),
        ("On P100 GPUs it takes a day.", True, "hardly time"),
        ("Videos in 1080p, sizes of 2080 and 3090 pixels.", False, ""),
    ],
)
def test_the_form_is_that_of_the_named_gpus(
    audited: Auditor, page: str, float16: bool, expected: str
) -> None:
    gap = precision(audited, {"train.py": train(), "README.md": README["README.md"] + page + "\n"})
    assert ("dtype=torch.float16" in gap.action, "dtype=torch.bfloat16" in gap.action) == (
        float16,
        not float16,
    )
    assert expected in gap.action
    assert not (expected == "" and ("On V100" in gap.action or "hardly" in gap.action))


@pytest.mark.parametrize(
    ("page", "is_main"),
    [
        ("```\npython train.py --epochs 90\n```\n", True),
        ("```\nbash scripts/train.sh\n```\n", True),
        ("```\npython -m train\n```\n", True),
        ("See `scripts/` for the commands.\n", True),
        ("```\npython test.py\n```\n", False),
        ("```\npython segmentation/train_net.py\n```\n", False),
        ("# A method\n", False),
        ("", True),
    ],
)
def test_a_script_of_whose_training_the_documentation_tells_nothing_is_no_main_one(
    audited: Auditor, page: str, is_main: bool
) -> None:
    files = {"train.py": train(workers=""), "scripts/train.sh": "python train.py\n", "README.md": page}
    assert ("workers" in critical(audited, files)) is is_main


@pytest.mark.parametrize(
    ("root", "is_main"),
    [("See [more](tuning).", True), ("```\ncd tuning\n```", True), ("Evaluates.", False)],
)
def test_a_page_of_a_folder_counts_where_the_root_names_the_folder(
    audited: Auditor, root: str, is_main: bool
) -> None:
    files = {
        "tuning/train.py": train(workers=""),
        "tuning/README.md": README["README.md"],
        "README.md": root + "\n",
    }
    assert ("workers" in critical(audited, files)) is is_main


def test_an_installed_command_that_the_documentation_names_is_a_training_of_its_script(
    audited: Auditor,
) -> None:
    files = {"pack/train.py": train(workers=""), "README.md": "```\npack-train --epochs 90\n```\n"}
    assert critical(audited, files) == set()
    files["pyproject.toml"] = '[project.scripts]\npack-train = "pack.train:main"\n'
    assert critical(audited, files) == {"workers"}


def test_a_script_that_is_documented_for_evaluation_alone_is_no_main_one(audited: Auditor) -> None:
    page = "```\npython train.py --evaluate --resume best.pt\n```\n"
    assert critical(audited, {"train.py": train(workers=""), "README.md": page}) == set()


def test_what_only_some_scripts_ask_for_names_them(audited: Auditor) -> None:
    page = "```\npython train.py\npython train_gan.py\n```\n"
    files = {
        "train.py": train(),
        "train_gan.py": train(before="nn.BCELoss()(images, labels)"),
        "README.md": page,
    }
    assert "In train_gan.py: `nn.BCELoss` raises" in precision(audited, files).action


@pytest.mark.parametrize(
    ("page", "form"),
    [
        ("It runs at 30 FPS on a 2080Ti GPU.\n", "bfloat16"),
        ("| Model | GPU | FPS |\n|---|---|---|\n| small | V100 | 80 |\n", "bfloat16"),
        ("Training takes a day on a 2080Ti, inference 20 ms.\n", "float16"),
        ("| Model | GPU | mAP |\n|---|---|---|\n| small | V100 | 80 |\n", "float16"),
    ],
)
def test_the_gpu_of_an_inference_is_not_that_of_the_training(audited: Auditor, page: str, form: str) -> None:
    gap = precision(audited, {"train.py": train(), "README.md": README["README.md"] + page})
    assert f"dtype=torch.{form})" in gap.action


LOSS = """\
    import torch
    import torch.nn.functional as F

    def balanced(logits, target):
        mask = target == 1
        others = target == 0
        weight = torch.zeros_like({like})
        every = mask.sum() + others.sum()
        weight[{where}] = {value}
        return F.binary_cross_entropy_with_logits(logits, target, weight)
"""


@pytest.mark.parametrize(
    ("like", "where", "value", "raises"),
    [
        ("logits", "mask", "others.sum() * 1.0 / every", True),
        ("logits, dtype=torch.float32", "mask", "others.sum() * 1.0 / every", False),
        ("target", "mask", "others.sum() * 1.0 / every", False),
        ("logits", "mask", "0.5", False),  # a number takes the type of the tensor
        ("logits", "0", "others.sum() * 1.0 / every", False),  # a copy, which casts
    ],
)
def test_values_put_by_a_mask_have_the_type_of_the_tensor(
    audited: Auditor, like: str, where: str, value: str, raises: bool
) -> None:
    """An index put does not cast, and under autocast the output of the network is in half precision."""
    files = {
        "train.py": train(imports="from losses import balanced", before="balanced(images, labels)"),
        "losses.py": LOSS.format(like=like, where=where, value=value),
        **README,
    }
    assert ("Make `weight` in float32" in precision(audited, files).action) is raises


def test_under_data_parallel_compilation_comes_later(audited: Auditor) -> None:
    for before, first in (("model = nn.DataParallel(model)", True), ("pass", False)):
        audit = audited({"train.py": train(before=before), **README})
        (gap,) = (gap for gap in audit.gaps if gap.key == "compile")
        assert ("Go to `DistributedDataParallel` first" in gap.action) is first
