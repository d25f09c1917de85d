"""Which convolutions count: those of networks of timm, and no filters with fixed weights."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.audit.values import Level, Measure, State
from tests.audit.conftest import Auditor

OFF, UNKNOWN, NONE = State.OFF, State.UNKNOWN, State.NOT_APPLICABLE
TRAIN = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
{code}

def main():
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data()):
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
PLAIN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        {layer}

    def forward(self, x):
        return self.layer(x)

{rest}
"""


def rows(audited: Auditor, code: str) -> dict[str, Measure]:
    (entry,) = audited({"train.py": TRAIN.format(code=textwrap.dedent(code))}).entries
    return {measure.key: measure for measure in entry.measures}


@pytest.mark.parametrize(
    ("origin", "name", "attention", "channels_last"),
    [
        ("timm.models.vision_transformer", "VisionTransformer", UNKNOWN, "cuts an image into patches"),
        ("timm.models.swin_transformer", "SwinTransformer", UNKNOWN, "cuts an image into patches"),
        ("timm.models.resnet", "ResNet", NONE, OFF),
        ("timm.models.maxxvit", "MaxxVit", UNKNOWN, UNKNOWN),
        ("torchvision.models.resnet", "ResNet", NONE, OFF),
        ("monai.networks.nets", "UNETR", UNKNOWN, OFF),
    ],
)
def test_a_network_of_a_library_is_none_without_attention_and_convolutions(
    audited: Auditor, origin: str, name: str, attention: State, channels_last: State | str
) -> None:
    written_out = f"import {origin}\n\nclass Net({origin}.{name}):\n    def forward(self, x):\n        return self.blocks(x)\n"
    imported = f"from {origin} import {name}\n\nclass Net({name}):\n    pass\n"
    made = f"from {origin} import {name}\n" + PLAIN.format(layer=f"self.backbone = {name}()", rest="")
    for code in (written_out, imported, made):
        found = rows(audited, code)
        assert found["attention"].state is attention
        if not isinstance(channels_last, State):
            assert (found["channels_last"].state, channels_last in found["channels_last"].detail) == (
                NONE,
                True,
            )
        else:
            assert found["channels_last"].state is channels_last


@pytest.mark.parametrize(("name", "state"), [("Unet", OFF), ("MAnet", UNKNOWN), ("losses.DiceLoss", NONE)])
def test_a_network_of_segmentation_models_has_convolutions(audited: Auditor, name: str, state: State) -> None:
    code = "import segmentation_models_pytorch as smp\n" + PLAIN.format(
        layer=f"self.net = smp.{name}()", rest=""
    )
    assert rows(audited, code)["channels_last"].state is state


def test_layers_of_timm_tell_what_is_in_them(audited: Auditor) -> None:
    block = (
        "from timm.models.vision_transformer import Block{}\nfrom timm.models.layers import trunc_normal_\n"
    )
    layers = "self.blocks = Block(8, 2); trunc_normal_(self.layer.weight)"
    found = rows(audited, block.format("") + PLAIN.format(layer=layers, rest=""))
    assert (found["attention"].state, found["channels_last"].detail) == (
        UNKNOWN,
        "no 2-d or 3-d convolution in the code that runs",
    )
    patches = rows(
        audited,
        block.format(", PatchEmbed")
        + PLAIN.format(layer=layers + "; self.embed = PatchEmbed(224, 16)", rest=""),
    )
    assert "cuts an image into patches" in patches["channels_last"].detail
    hybrid = "from timm.models.vision_transformer import VisionTransformer\n" + PLAIN.format(
        layer="self.net = VisionTransformer(embed_layer=Stem)", rest=""
    )
    assert rows(audited, hybrid)["channels_last"].state is UNKNOWN


FILTERS = {
    "buffer": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                kernel = torch.tensor([[1.0, 0.0, -1.0]])
                self.register_buffer("kernel", kernel.view(1, 1, 1, 3))

            def forward(self, x):
                return F.conv2d(x, self.kernel, padding=1)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
    "local": """
        def criterion(a, b):
            sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]).view(1, 1, 3, 3).to(a.device, a.dtype)
            sobel = sobel.expand(a.size(1), 1, 3, 3)
            return F.conv2d(a - b, weight=sobel).abs().mean()
    """,
    "similarity": """
        def create_window(size, channel):
            return torch.ones(channel, 1, size, size) / size ** 2

        def _ssim(a, b, window, channel):
            return (F.conv2d(a, window, padding=5, groups=channel) - F.conv2d(b, window, padding=5, groups=channel)).mean()

        def criterion(a, b):
            return _ssim(a, b, create_window(11, a.size(1)), a.size(1))
    """,
    "layer": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 3, bias=False)
                self.conv.weight.data = torch.ones(1, 1, 3, 3)
                self.conv.weight.requires_grad = False

            def forward(self, x):
                return self.conv(x)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
}
TRAINED = {
    "parameter": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                self.kernel = nn.Parameter(torch.ones(8, 8, 3, 3))

            def forward(self, x):
                kernel = self.kernel * 0.5
                return F.conv2d(x, kernel)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
    "of a layer": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Linear(8, 8)

            def forward(self, x):
                return F.conv2d(x, self.conv.weight)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
    "predicted": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                self.predict = nn.Linear(8, 8)

            def forward(self, x):
                kernels = self.predict(x)
                return F.conv2d(x, kernels)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
    "layer": """
        class Edges(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 3, bias=False)
                self.conv.weight.data = torch.ones(1, 1, 3, 3)

            def forward(self, x):
                return self.conv(x)

        def criterion(a, b):
            return Edges()(a - b).sum()
    """,
}


@pytest.mark.parametrize("code", FILTERS.values(), ids=list(FILTERS))
def test_a_filter_with_fixed_weights_is_no_network(audited: Auditor, code: str) -> None:
    found = rows(audited, PLAIN.format(layer="", rest=textwrap.dedent(code)))
    for key in ("channels_last", "cudnn_benchmark"):
        assert (found[key].state, found[key].detail) == (
            NONE,
            "the only convolution is a filter with fixed weights",
        )


@pytest.mark.parametrize("code", TRAINED.values(), ids=list(TRAINED))
def test_a_convolution_that_is_trained_is_one(audited: Auditor, code: str) -> None:
    assert rows(audited, PLAIN.format(layer="", rest=textwrap.dedent(code)))["channels_last"].state is OFF


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        ("kernel_size=16, stride=16", NONE),
        ("kernel_size=(2, p[0], p[1]), stride=(2, p[0], p[1])", NONE),
        ("kernel_size=(p, p), stride=p", NONE),
        ("kernel_size=(2, p, p), stride=(1, p, p)", OFF),
        ("kernel_size=1, stride=1", OFF),
    ],
)
def test_a_convolution_as_wide_as_its_stride_cuts_patches(
    audited: Auditor, arguments: str, state: State
) -> None:
    code = f"""
class Net(nn.Module):
    def __init__(self, p=16):
        super().__init__()
        self.layer = nn.Conv3d(3, 8, {arguments})

    def forward(self, x):
        return self.layer(x)
"""
    found = rows(audited, code)["channels_last"]
    assert found.state is state
    assert found.evidence[0].path == "train.py"
    if state is NONE:
        assert found.detail == "the only convolution cuts an image into patches, which is a matrix product"


def test_networks_that_the_repository_registers_do_not_come_from_a_library(audited: Auditor) -> None:
    code = """
from timm.models import create_model, register_model

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 16, 16)

    def forward(self, x):
        return self.layer(x)

@register_model
def patches_base(**kwargs):
    return Patches(**kwargs)

def Net():
    return create_model("patches_base")
"""
    assert "cuts an image into patches" in rows(audited, code)["channels_last"].detail


def test_tf32_weighs_little_where_there_are_convolutions_and_no_attention(audited: Auditor) -> None:
    """Those use it by default; as many linear layers are not little beside them."""
    layer = "self.layer = nn.Conv2d(3, 8, 3)"
    convolves = audited({"train.py": TRAIN.format(code=PLAIN.format(layer=layer, rest=""))})
    plain = audited({"train.py": TRAIN.format(code=PLAIN.format(layer="", rest=""))})
    levels = [next(gap.level for gap in audit.gaps if gap.key == "tf32") for audit in (convolves, plain)]
    assert levels == [Level.LOW, Level.MODERATE]


@pytest.mark.parametrize(("made", "state"), [("models.resnet50", OFF), ("nn.Linear", NONE)])
def test_a_network_that_is_taken_from_a_table(audited: Auditor, made: str, state: State) -> None:
    table = f"from torchvision import models\nNETWORKS = {{'a': {made}, 'b': {made}}}\n"
    code = table + PLAIN.format(layer="self.net = NETWORKS[name](pretrained=True)", rest="")
    assert rows(audited, code)["channels_last"].state is state


@pytest.mark.parametrize("layer", ["nn.Conv1d(8, 8, 3)", "nn.ConvTranspose1d(8, 8, 3)"])
def test_cudnn_searches_algorithms_of_1d_convolutions_too(audited: Auditor, layer: str) -> None:
    code = PLAIN.format(layer=f"self.conv = {layer}", rest="")
    found = rows(audited, code)
    assert (found["channels_last"].state, found["cudnn_benchmark"].state) == (NONE, OFF)
    switched = rows(audited, code + "torch.backends.cudnn.benchmark = True\n")
    assert switched["cudnn_benchmark"].state is State.ON
    none = rows(audited, PLAIN.format(layer="", rest=""))["cudnn_benchmark"]
    assert (none.state, none.detail) == (NONE, "no convolution in the code that runs")
