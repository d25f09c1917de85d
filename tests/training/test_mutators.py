from __future__ import annotations

import ast

import pytest

from ptopt.rules import rules
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from training.mutators import Mutator, mutators
from training.mutators.attention import AttentionByHand, CausalMaskMaterialised, EagerAttention
from training.mutators.autograd import DetachTaken, NoGradTaken
from training.mutators.base import apply, is_known, remove_keyword
from training.mutators.growing import CatInLoop, ItemPerElement
from training.mutators.layers import CompileInLoop, ModuleBuiltInForward, ScalarListRebuilt
from training.mutators.loaders import LoaderRebuilt
from training.mutators.optim import MovingAverageAllocates, OptimizerBuiltInLoop
from training.mutators.step import MetricKeepsGraph
from training.mutators.switches import (
    AnomalyDetectionOn,
    CudnnAutotuneOff,
    DetectAnomalyAroundBackward,
    ProfilerAroundTraining,
)
from training.mutators.tensors import RepeatForBroadcast
from training.mutators.transfer import LegacyTensorType

RULES = {rule.name: rule for rule in rules()}
EXAMPLES = [
    pytest.param(mutator, before, after, id=f"{type(mutator).__name__}-{number}")
    for mutator in mutators()
    for number, (before, after) in enumerate(mutator.examples)
]


def hits(text: str, rule: str) -> int:
    source = SourceFile.parse("a.py", text.encode())
    return sum(hit.problem.confidence >= 0.6 for hit in run(source, [RULES[rule]]))


@pytest.mark.parametrize(("mutator", "before", "after"), EXAMPLES)
def test_an_example_gets_its_problem(mutator: Mutator, before: str, after: str) -> None:
    source = SourceFile.parse("a.py", before.encode())
    made = [apply(before, m.edits)[0] for m in mutator.mutate(source) if not m.guarded]
    assert after in made
    assert hits(after, mutator.rule) > hits(before, mutator.rule)


@pytest.mark.parametrize(("mutator", "before", "after"), EXAMPLES)
def test_look_alikes_leave_the_rule_silent(mutator: Mutator, before: str, after: str) -> None:
    source = SourceFile.parse("a.py", before.encode())
    for mutation in mutator.mutate(source):
        if mutation.guarded:
            assert hits(apply(before, mutation.edits)[0], mutator.rule) == 0


@pytest.mark.parametrize("text", sorted({p.values[1] for p in EXAMPLES} | {p.values[2] for p in EXAMPLES}))
def test_every_mutation_leads_back(text: str) -> None:
    source = SourceFile.parse("a.py", text.encode())
    for mutator in mutators():
        for mutation in mutator.mutate(source):
            mutated, back = apply(text, mutation.edits)
            ast.parse(mutated)
            assert apply(mutated, back)[0] == text


def test_most_families_have_mutators() -> None:
    names = {mutator.rule for mutator in mutators()}
    assert names <= set(RULES)
    assert len(names) >= 50
    assert len({RULES[name].family for name in names}) >= 9


def test_the_same_file_is_mutated_the_same_way() -> None:
    text = EXAMPLES[0].values[1]
    first, second = (
        [m.edits for mutator in mutators() for m in mutator.mutate(SourceFile.parse("a.py", text.encode()))]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("f(a, device=d)", "f(a)"),
        ("f(device=d)", "f()"),
        ("f(device=d, b=1)", "f(b=1)"),
        ("f(a, device=torch.device('cuda'), b=(1))", "f(a, b=(1))"),
        ("f(a)", None),
        ("f((a), device=d)", None),
    ],
)
def test_a_keyword_is_taken_with_its_comma(call: str, left: str | None) -> None:
    source = SourceFile.parse("a.py", f"x = {call}\n".encode())
    node = next(source.index.of_type(ast.Assign)).value
    assert isinstance(node, ast.Call)
    edit = remove_keyword(source, node, "device")
    assert (None if edit is None else apply(source.text, (edit,))[0]) == (
        None if left is None else f"x = {left}\n"
    )


def test_edits_that_overlap_are_refused() -> None:
    from ptopt.findings import Edit

    with pytest.raises(ValueError, match="overlap"):
        apply("abcdef", (Edit(0, 3, "x"), Edit(2, 4, "y")))


def mutated(mutator: type[Mutator], text: str) -> list[str]:
    source = SourceFile.parse("a.py", text.encode())
    return [apply(text, m.edits)[0] for m in mutator().mutate(source) if not m.guarded]


NET = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        {}\n\n    def forward(self, x):\n        {}\n"


@pytest.mark.parametrize(
    ("init", "call"),
    [
        ("pass", "self.pooling(x)"),
        ("self.dropout = nn.Dropout(0.1)", "self.dropout(x)"),
        ("self.proj = nn.Conv1d(8, 8, 1)", "self.proj(x)"),
    ],
)
def test_only_what_is_a_layer_by_its_name_is_built_in_forward(init: str, call: str) -> None:
    assert mutated(ModuleBuiltInForward, NET.format(init, f"return {call}")) == []
    (linear,) = mutated(ModuleBuiltInForward, NET.format("pass", "return self.out_proj(x)"))
    assert "return nn.Linear(x.shape[-1], x.shape[-1]).to(x.device)(x)" in linear


@pytest.mark.parametrize("call", ["self.log(x)", "self.get_model(x)", "self.reshape_mask(x)"])
def test_methods_are_not_compiled(call: str) -> None:
    assert mutated(CompileInLoop, NET.format("pass", f"return {call}")) == []
    assert mutated(CompileInLoop, NET.format("pass", "return self.text_encoder(x)"))


def test_what_a_convolution_makes_is_not_normalised_as_an_image() -> None:
    assert mutated(ScalarListRebuilt, NET.format("pass", "x = self.conv(x)\n        return x")) == []


def test_a_loader_that_the_outer_loop_makes_is_not_made_before_it() -> None:
    text = (
        "import torch\n\n\ndef run(fold_of, model, optimizer):\n    for fold in range(5):\n        loader = fold_of(fold)\n"
        "        for epoch in range(9):\n            for x in loader:\n                model(x.cuda()).mean().backward()\n"
        "                optimizer.step()\n"
    )
    source = SourceFile.parse("a.py", text.encode())
    found = list(LoaderRebuilt().mutate(source))
    assert found and not any(m.answered or m.fast for m in found)


ATTENTION = "import torch\nimport torch.nn.functional as F\n\n\ndef forward(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v, {})\n"


@pytest.mark.parametrize("value", ["False", "causal", "not self.training"])
def test_no_mask_is_put_where_nothing_was_masked(value: str) -> None:
    assert mutated(CausalMaskMaterialised, ATTENTION.format(f"is_causal={value}")) == []
    assert mutated(CausalMaskMaterialised, ATTENTION.format("is_causal=True"))


def test_no_mask_is_put_where_a_cache_brings_more_keys() -> None:
    cached = ATTENTION.format("is_causal=True").replace(
        "    return", "    k = torch.cat((cache, k), dim=-2)\n    return"
    )
    assert mutated(CausalMaskMaterialised, cached) == []


def test_a_scale_keeps_its_brackets() -> None:
    (slow,) = mutated(AttentionByHand, ATTENTION.format("scale=1 / q.size(-1)"))
    assert "* (1 / q.size(-1))" in slow


@pytest.mark.parametrize(
    ("loaded", "number"), [("AutoModel", 1), ("LlamaForCausalLM", 1), ("AutoTokenizer", 0), ("WhisperProcessor", 0)]
)  # fmt: skip
def test_only_models_of_transformers_are_made_eager(loaded: str, number: int) -> None:
    text = f"from transformers import {loaded}\n\n\nmodel = {loaded}.from_pretrained(name)\n"
    assert len(mutated(EagerAttention, text)) == number
    assert mutated(EagerAttention, text.replace("from transformers", "from nemo.models")) == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("backward", "super().backward(loss)"),
        ("backward", "kernel.backward(a, b)"),
        ("step", "kernel.backward(a, b)"),
    ],
)
def test_only_the_backward_pass_of_a_loss_is_searched_for_anomalies(name: str, call: str) -> None:
    text = f"import torch\n\n\nclass A(B):\n    def {name}(self, loss, a, b):\n        {call}\n"
    assert mutated(DetectAnomalyAroundBackward, text) == []


def test_no_optimizer_is_made_behind_its_step() -> None:
    text = (
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n"
    )
    assert mutated(OptimizerBuiltInLoop, text) == []


@pytest.mark.parametrize(
    ("mutator", "line", "slow"),
    [
        (LegacyTensorType, "y = (a == b).float()", "y = (a == b).type(torch.FloatTensor)"),
        (RepeatForBroadcast, "y = (a + b).expand(n, -1)", "y = (a + b).repeat(n, 1)"),
        (DetachTaken, "y = y + (a + b).detach()", "y = y + (a + b)"),
        (MovingAverageAllocates, "a.mul_(1 - m).add_(b - y, alpha=m)", "a.copy_(a * (1 - m) + (b - y) * (m))"),
    ],
)  # fmt: skip
def test_operators_keep_their_brackets(mutator: type[Mutator], line: str, slow: str) -> None:
    text = f"import torch\n\n\ndef f(a, b, y, n, m, loader):\n    for x in loader:\n        {line}\n"
    assert f"        {slow}\n" in mutated(mutator, text)[0]


def test_a_list_of_images_is_not_normalised_as_one_tensor() -> None:
    text = NET.format("pass", "return self.detect(x)").replace(
        "def forward(self, x)", "def forward(self, images)"
    )
    assert mutated(ScalarListRebuilt, text.replace("detect(x)", "detect(images)")) == []


def test_a_loop_in_a_step_is_not_put_under_a_profiler() -> None:
    text = (
        "import torch\n\n\nclass Net(LightningModule):\n    def training_step(self, batch, batch_idx):\n        for x in batch:\n"
        "            loss = self(x)\n            loss.backward()\n            self.optimizer.step()\n"
    )
    assert mutated(ProfilerAroundTraining, text) == []


def test_a_parameter_of_another_method_is_not_known_here() -> None:
    text = (
        "import torch\n\n\nclass A:\n    def __init__(self, device):\n        self.device = torch.device(device)\n\n"
        "    def train_step(self, batch):\n        self.optimizer.step()\n"
    )
    source = SourceFile.parse("a.py", text.encode())
    made, step = (function.body[0] for function in source.index.of_type(ast.FunctionDef))
    assert is_known(source, "torch.cuda.synchronize(device)", made)
    assert not is_known(source, "torch.cuda.synchronize(device)", step)
    assert is_known(source, "torch.cuda.synchronize(self.device)", step)


def test_a_script_that_trains_nothing_gets_no_settings() -> None:
    text = "import torch\n\n\ndef main():\n    model = torch.load('a.pt').to('cpu')\n    torch.save(model, 'b.pt')\n"
    assert mutated(AnomalyDetectionOn, text) == mutated(CudnnAutotuneOff, text) == []


def test_a_loop_over_optimizers_is_not_the_training() -> None:
    text = (
        "import torch\n\n\ndef optimizers_step(optimizers, scaler):\n    for optimizer in optimizers:\n"
        "        scaler.step(optimizer)\n        optimizer.step()\n"
    )
    assert mutated(ProfilerAroundTraining, text) == []


def test_a_pass_that_only_asks_for_a_shape_keeps_its_no_grad() -> None:
    text = "import torch\n\n\ndef width(net):\n    with torch.no_grad():\n        return net({}).shape[1]\n"
    assert mutated(NoGradTaken, text.format("torch.rand(1, 3, 8, 8)")) == []
    assert mutated(NoGradTaken, text.format("images"))


def test_what_a_loop_within_a_step_collects_is_gone_with_it() -> None:
    text = (
        "import torch\n\n\nclass Net(LightningModule):\n    def training_step(self, batch, batch_idx):\n        for x in batch:\n"
        "            loss = self(x)\n            loss.backward()\n            self.optimizer.step()\n"
    )
    assert mutated(MetricKeepsGraph, text) == []


def test_another_library_whose_name_begins_with_torch_is_not_torch() -> None:
    text = CatInLoop.examples[0][0].replace("import torch\n", "import torchdrug as torch\n")
    assert mutated(CatInLoop, text) == []


def test_numbers_that_are_counted_are_not_read_one_by_one() -> None:
    text = "import torch\n\n\ndef axes(x):\n    return torch.{}(x.dim()).tolist()\n"
    assert mutated(ItemPerElement, text.format("arange")) == []
    assert mutated(ItemPerElement, text.format("randperm"))
