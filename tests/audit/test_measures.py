"""The rows of the table: what is on, off, unknown and not applicable, and by what."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

ON, OFF, UNKNOWN, NONE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE


def script(
    before: str = "", step: str = "        loss = model(x).sum()", after: str = "", args: str = ""
) -> str:
    """A training loop with code in its places."""
    return f"""\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
{after}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--no-pin", dest="pin", action="store_false")
    {args}
    args = parser.parse_args()
{before}
    for x, y in loader:
{step}
        loss.backward()
        optimizer.step()


class Net(nn.Module):
    def forward(self, x):
        return x


if __name__ == "__main__":
    net = Net()
    main()
"""


def measure(audited: Auditor, key: str, code: str, **files: str) -> Measure:
    return row(
        audited, {"train.py": code, **{name.replace("__", "."): text for name, text in files.items()}}, key
    )


def row(audited: Auditor, files: dict[str, str], key: str) -> Measure:
    (entry,) = audited(files).entries
    return next(m for m in entry.measures if m.key == key)


AUTOCAST = """\
        with torch.autocast("cuda", dtype=torch.bfloat16{}):
            loss = model(x).sum()"""
LOADER = "    loader = DataLoader(data, batch_size=8{})"
CASES: list[tuple[str, str, State, str]] = [
    ("precision", script(), OFF, "float32 throughout"),
    ("precision", script(step=AUTOCAST.format("")), ON, "autocast bfloat16"),
    ("precision", script(step=AUTOCAST.format(", enabled=args.amp")), OFF, "default of `--amp`"),
    ("precision", script(step=AUTOCAST.format(", enabled=cfg.half")), UNKNOWN, "cfg.half"),
    ("precision", script(before="    model.half()"), ON, "half"),
    ("precision", script(before="    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)"), ON, "FSDP"),
    ("precision", script(before="    policy = MixedPrecisionPolicy(param_dtype=torch.float32)"), OFF, "FSDP"),
    (
        "precision",
        script(before="    policy = MixedPrecisionPolicy(param_dtype=types[cfg.half])"),
        UNKNOWN,
        "types",
    ),
    (
        "precision",
        script(before="    model = Net.from_pretrained('x', dtype=torch.bfloat16)"),
        ON,
        "loaded with",
    ),
    ("precision", script(before="    kind = torch.bfloat16 if big else None"), UNKNOWN, "torch.bfloat16"),
    ("tf32", script(), OFF, "since torch 1.12"),
    ("tf32", script(before='    torch.set_float32_matmul_precision("high")'), ON, "set_float32"),
    ("tf32", script(before='    torch.set_float32_matmul_precision("highest")'), OFF, "set_float32"),
    ("tf32", script(after="torch.backends.cuda.matmul.allow_tf32 = True"), ON, "allow_tf32"),
    ("compile", script(before="    model = torch.compile(net)"), ON, "torch.compile"),
    ("compile", script(before="    if args.amp:\n        model = torch.compile(net)"), OFF, "`--amp`"),
    ("compile", script(after="import re\nPATTERN = re.compile('x')"), OFF, "nothing is compiled"),
    ("workers", script(before=LOADER.format("")), OFF, "the default of `DataLoader`"),
    ("workers", script(before=LOADER.format(", num_workers=args.workers")), ON, "4 (default of `--workers`)"),
    ("workers", script(before=LOADER.format(", num_workers=os.cpu_count()")), ON, "number of CPUs"),
    ("workers", script(before=LOADER.format(", **options")), UNKNOWN, "`**`"),
    ("workers", script(before="    o = dict(num_workers=3)\n" + LOADER.format(", **o")), ON, "3"),
    ("workers", script(), NONE, "no `DataLoader`"),
    ("workers", script(before=LOADER.replace("loader", "val_loader").format("")), NONE, "no `DataLoader`"),
    ("pin_memory", script(before=LOADER.format(", pin_memory=args.pin")), ON, "default of `--no-pin`"),
    ("persistent_workers", script(before=LOADER.format("")), NONE, "no workers"),
    ("persistent_workers", script(before=LOADER.format(", num_workers=2")), NONE, "runs once"),
    (
        "persistent_workers",
        script(before=LOADER.format(", num_workers=2")).replace("in loader:", "in epochs(loader):"),
        OFF,
        "False",
    ),
    ("prefetch", script(before=LOADER.format(", num_workers=2")), ON, "2 for each worker"),
    (
        "non_blocking",
        script(step="        loss = model(x.cuda(non_blocking=True)).sum()"),
        ON,
        "non_blocking",
    ),
    ("non_blocking", script(step="        loss = model(x.cuda()).sum()"), OFF, "wait"),
    ("non_blocking", script(), NONE, "no copy"),
    ("fused_optimizer", script(before="    optimizer = torch.optim.AdamW(p, fused=True)"), ON, "AdamW"),
    ("fused_optimizer", script(before="    optimizer = torch.optim.SGD(p, lr=1)"), OFF, "multi-tensor"),
    (
        "set_to_none",
        script(step="        optimizer.zero_grad()\n        loss = model(x)"),
        ON,
        "since torch 2.0",
    ),
    (
        "set_to_none",
        script(step="        optimizer.zero_grad(set_to_none=False)\n        loss = 1"),
        OFF,
        "zeros",
    ),
    ("gradient_checkpointing", script(), OFF, "kept"),
    (
        "gradient_checkpointing",
        script(
            after="from torch.utils.checkpoint import checkpoint", step="        loss = checkpoint(model, x)"
        ),
        ON,
        "checkpoint",
    ),
    ("distributed", script(), OFF, "one process"),
    ("distributed", script(before="    model = nn.DataParallel(model)"), OFF, "DataParallel"),
    (
        "distributed",
        script(before="    if args.distributed:\n        model = nn.parallel.DistributedDataParallel(model)"),
        ON,
        "DDP",
    ),
    ("channels_last", script(), NONE, "no 2-d or 3-d"),
    ("channels_last", script(before="    model = nn.Conv2d(3, 4, 5)"), OFF, "default memory format"),
    (
        "channels_last",
        script(before="    model = nn.Conv2d(3, 4, 5).to(memory_format=torch.channels_last)"),
        ON,
        "channels_last",
    ),
    ("cudnn_benchmark", script(before="    torch.backends.cudnn.benchmark = True"), ON, "benchmark"),
    ("saving", script(), OFF, "nothing is saved"),
    ("saving", script(before="    torch.save(model.state_dict(), 'm.pt')"), ON, "synchronous"),
    ("monitoring", script(after="import wandb"), ON, "Weights & Biases"),
    ("monitoring", script(), OFF, "no experiment tracker"),
    ("attention", script(), NONE, "no attention"),
    (
        "attention",
        script(step="        loss = nn.functional.scaled_dot_product_attention(x, x, x)"),
        ON,
        "scaled_dot",
    ),
]


@pytest.mark.parametrize(("key", "code", "state", "said"), CASES)
def test_rows(audited: Auditor, key: str, code: str, state: State, said: str) -> None:
    found = measure(audited, key, code)
    assert (found.state, said in found.detail) == (state, True), found


def test_linear_attention_is_none_that_a_fused_kernel_computes(audited: Auditor) -> None:
    linear = "def linear_attention(q, k, v):\n    q = q.softmax(dim=-2)\n    k = k.softmax(dim=-1)\n    context = {}\n    return {}"
    code = script(
        after=linear.format("torch.einsum('bdn,ben->bde', k, v)", "torch.einsum('bde,bdn->ben', context, q)"),
        step="        loss = linear_attention(x, x, x).sum()",
    )
    assert measure(audited, "attention", code).state is NONE


@pytest.mark.parametrize(
    "bound", ["partial(Attend, flash=args.amp or True)", "functools.partial(Attend, True)"]
)
def test_an_option_that_partial_gives_is_no_default(audited: Auditor, bound: str) -> None:
    attend = """\
import functools
from functools import partial

class Attend(nn.Module):
    def __init__(self, flash=False):
        super().__init__()
        self.flash = flash

    def forward(self, q, k, v):
        if self.flash:
            return nn.functional.scaled_dot_product_attention(q, k, v)
        attn = (q @ k.mT).softmax(-1)
        return attn @ v
"""
    code = script(after=attend, before=f"    make = {bound}\n    model = make()")
    assert measure(audited, "attention", code).state is ON


@pytest.mark.parametrize(
    "scores",
    [
        "s = q @ k.mT\n    s += bias\n    s = s * 0.1",
        "s = torch.empty(3, 3)\n    s.copy_(q @ k.mT)",
        "s = torch.empty(3, 3)\n    s[:] = torch.bmm(q, k.mT)",
    ],
)
def test_attention_by_hand_through_steps(audited: Auditor, scores: str) -> None:
    attend = f"def attend(q, k, v):\n    {scores}\n    attn = torch.softmax(s, dim=-1)\n    return torch.bmm(attn, v)"
    step = "        loss = attend(x, x, x).sum()"
    found = measure(audited, "attention", script(after=attend, step=step))
    assert (found.state, found.detail) == (OFF, "computed by separate products and softmax in `attend`")


def test_soft_targets_of_a_contrastive_loss_are_no_attention(audited: Auditor) -> None:
    code = """def contrast(images, texts, queue, attention_mask, alpha):
    texts = encode(texts, attention_mask)
    sim_i2t = images @ queue
    sim_t2i = texts @ queue
    sim_targets = torch.zeros_like(sim_i2t)
    targets = alpha * F.softmax(sim_i2t, dim=1) + (1 - alpha) * sim_targets
    loss = -torch.sum(F.log_softmax(sim_t2i, dim=1) * targets, dim=1).mean()
    chances = F.softmax(sim_t2i[:, :8], dim=1)
    hardest = torch.multinomial(chances[0], 1)
    return loss, hardest"""
    step = "        loss, _ = contrast(x, x, x, x, 0.4)"
    assert measure(audited, "attention", script(after=code, step=step)).state is not OFF


def test_attention_by_hand(audited: Auditor) -> None:
    code = script(
        after="def attend(q, k, v):\n    attn = torch.softmax(q @ k.transpose(-2, -1), dim=-1)\n    return attn @ v",
        step="        loss = attend(x, x, x).sum()",
    )
    found = measure(audited, "attention", code)
    assert found.state is OFF
    assert found.evidence[0].path == "train.py"


def test_of_a_network_that_is_not_seen_nothing_is_said(audited: Auditor) -> None:
    code = script().replace("    net = Net()\n", "")
    states = {key: measure(audited, key, code).state for key in ("precision", "attention", "channels_last")}
    assert set(states.values()) == {UNKNOWN}


def test_a_registry_of_modules_is_followed(audited: Auditor) -> None:
    make = "import importlib\nimport models\nnet = getattr(models, NAME)()\n"
    code = script(after=make).replace("    net = Net()\n", "")
    models = "from torch import nn\nclass Deep(nn.Module):\n    def forward(self, x):\n        return nn.Conv2d(1, 2, 3)(x)\n"
    found = measure(audited, "channels_last", code, models__py=models)
    assert (found.state, found.evidence[0].path) == (OFF, "models.py")


def test_code_that_nothing_calls_switches_nothing_on(audited: Auditor) -> None:
    code = script(after="def unused(x):\n    with torch.autocast('cuda'):\n        return x")
    assert measure(audited, "precision", code).state is OFF


def test_a_value_travels_through_modules(audited: Auditor) -> None:
    code = script(after="from data import make", before="    loader = make(args.workers)")
    data = (
        "from torch.utils.data import DataLoader\ndef make(n):\n    return DataLoader(None, num_workers=n)\n"
    )
    found = measure(audited, "workers", code, data__py=data)
    assert (found.state, [str(p) for p in found.evidence]) == (ON, ["train.py:10"])


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [
        ("num_workers=[4, 4]", ON, "`num_workers` is 4"),
        ("num_workers=[4] * 2", ON, "`num_workers` is 4"),
        ("num_workers=(4, 8)", ON, "`num_workers` is 4 or 8"),
        ("num_workers=[0, 0]", OFF, "`num_workers` is 0"),
        ("num_workers=[4, 0]", UNKNOWN, "`num_workers`: `numbers`"),
        ("num_workers=sizes", UNKNOWN, "`num_workers`: `n`"),
    ],
)
def test_lists_that_a_helper_zips(audited: Auditor, given: str, state: State, said: str) -> None:
    helper = (
        "def make(sets, num_workers):\n    loaders = []\n    numbers = num_workers\n"
        "    for i, (data, n) in enumerate(zip(sets, numbers)):\n"
        "        loaders.append(DataLoader(data, num_workers=n))\n    return loaders\n"
    )
    code = script(after=helper, before=f"    loader = make([a, b], {given})[0]")
    found = measure(audited, "workers", code)
    assert (found.state, found.detail.partition(" (")[0]) == (state, said)


def test_a_configuration_file_answers(audited: Auditor) -> None:
    code = script(before=LOADER.format(", num_workers=cfg.data.workers_of_loader"))
    yaml = "data:\n  batch_size: 8\n  workers_of_loader: 6\n"
    found = measure(audited, "workers", code, config__yaml=yaml)
    assert (found.state, str(found.evidence[0])) == (ON, "config.yaml:3")


def test_configuration_files_that_differ_do_not_answer(audited: Auditor) -> None:
    code = script(before=LOADER.format(", num_workers=cfg.n_loader"))
    found = measure(audited, "workers", code, a__yaml="lr: 1\nn_loader: 0\n", b__yaml="lr: 1\nn_loader: 6\n")
    assert found.state is UNKNOWN
    assert "differs" in found.detail


TRAINER = """
from transformers import HfArgumentParser, Trainer, TrainingArguments

def main():
    (args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    Trainer(model, args, train_dataset=data).train()

if __name__ == "__main__":
    main()
"""


def test_a_command_line_of_transformers_has_the_defaults_of_the_library(audited: Auditor) -> None:
    found = measure(audited, "precision", TRAINER)
    assert found.state is OFF
    assert "no command that starts the script was found" in found.detail


def test_a_launch_script_sets_an_option(audited: Auditor) -> None:
    command = "set -e\npython train.py \\\n    --output_dir out \\\n    --bf16 True\n"
    found = measure(audited, "precision", TRAINER, run__sh=command)
    assert (found.state, str(found.evidence[0])) == (ON, "run.sh:4")


def test_launch_scripts_that_differ_do_not_answer(audited: Auditor) -> None:
    found = measure(
        audited, "precision", TRAINER, a__sh="python train.py --bf16 True\n", b__sh="python train.py --lr 1\n"
    )
    assert found.state is UNKNOWN


def test_trainer_arguments_in_the_code(audited: Auditor) -> None:
    code = TRAINER.replace(
        "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()",
        'args = TrainingArguments("out", bf16=True, dataloader_num_workers=2)',
    )
    assert measure(audited, "precision", code).state is ON
    assert measure(audited, "workers", code).state is ON
    assert measure(audited, "gradient_checkpointing", code).state is OFF
    for name in ("activation_checkpointing", "gradient_checkpointing"):  # the first since transformers 5
        on = code.replace("bf16=True", f"{name}=True")
        assert measure(audited, "gradient_checkpointing", on).state is ON
        assert name in measure(audited, "gradient_checkpointing", on).detail


def test_the_loop_of_another_framework_is_not_judged(audited: Auditor) -> None:
    code = (
        "from mmengine.runner import Runner\nif __name__ == '__main__':\n    Runner.from_cfg(cfg).train()\n"
    )
    (entry,) = audited({"train.py": code}).entries
    states = {m.key: m.state for m in entry.measures}
    assert {states[key] for key in ("precision", "tf32", "workers", "distributed", "compile")} == {UNKNOWN}


def test_an_evaluation_that_records_the_graph(audited: Auditor) -> None:
    validate = "def validate(model, val_loader):\n    for x in val_loader:\n        print(model(x))"
    code = script(after=validate, before="    validate(model, val_loader)")
    assert measure(audited, "evaluation", code).state is OFF
    by_method = validate.replace("model(x)", "model.forward_encoder(x)[0].mean().item()")
    assert measure(audited, "evaluation", script(after=by_method, before="    validate(1, 2)")).state is OFF
    free = validate.replace("def validate", "@torch.no_grad()\ndef validate")
    assert measure(audited, "evaluation", script(after=free, before="    validate(1, 2)")).state is ON


def test_an_evaluation_in_the_function_that_trains(audited: Auditor) -> None:
    loop = "    model.eval()\n    for x, y in val_loader:\n        print(model(x))\n"
    assert measure(audited, "evaluation", script(before=loop)).state is OFF
    free = "    model.eval()\n    for x, y in val_loader:\n        with torch.no_grad():\n            print(model(x))\n"
    assert measure(audited, "evaluation", script(before=free)).state is ON


def test_a_script_that_uses_a_trained_model_does_not_train(audited: Auditor) -> None:
    trains = script()
    uses = "from train import main, Net\n\nif __name__ == '__main__':\n    main()\n"
    found = audited({"train.py": trains, "inference_demo.py": uses, "start.py": uses}).entries
    assert {entry.path for entry in found} == {"start.py", "train.py"}


def test_a_class_that_derives_from_a_loader(audited: Auditor) -> None:
    derived = """
class Loader(DataLoader):
    def __init__(self, data):
        super().__init__(data, num_workers=6, pin_memory=True)
"""
    code = script(after=derived, before="    loader = Loader(data)")
    assert measure(audited, "workers", code).state is ON
    assert measure(audited, "pin_memory", code).state is ON


OLD = {"requirements.txt": "torch==1.8.0\n"}


def test_what_an_old_torch_has(audited: Auditor) -> None:
    found = audited({"train.py": script(), **OLD})
    (entry,) = found.entries
    states = {m.key: m.state for m in entry.measures}
    assert states["tf32"] is ON
    assert states["compile"] is NONE
    assert {gap.key for gap in found.gaps}.isdisjoint({"compile", "fused_optimizer", "tf32"})
    helper = (
        "def attention(q, k, v):\n    scores = torch.matmul(q, k.transpose(-2, -1))\n"
        "    return torch.matmul(torch.softmax(scores, -1), v)\n"
    )
    by_hand = script(after=helper, before="    attention(1, 2, 3)")
    notes = audited({"train.py": by_hand, "requirements.txt": "torch==1.5.0\n"}).notes
    assert any("torch==1.5.0" in note and "Attention" in note for note in notes)
    assert "torch.cuda.amp" in next(gap.action for gap in found.gaps if gap.key == "precision")


def test_what_is_called_by_the_training_is_no_evaluation_whatever_its_name(audited: Auditor) -> None:
    helper = """
def predict(model, x, amp):
    if amp:
        with torch.cuda.amp.autocast():
            return model(x)
    return model(x)
"""
    code = script(after=helper, step="        loss = predict(model, x, args.amp).sum()")
    found = measure(audited, "precision", code)
    assert found.state is OFF and "autocast" in found.detail and "`--amp`" in found.detail


def test_data_parallel_by_an_option_that_is_off(audited: Auditor) -> None:
    option = "parser.add_argument('--use_multi_gpu', action='store_true')"
    wrap = "    if args.use_multi_gpu:\n        model = nn.DataParallel(model)"
    found = measure(audited, "distributed", script(before=wrap, args=option))
    assert found.state is OFF and found.detail == "one process on one device, default of `--use_multi_gpu`"
    always = measure(audited, "distributed", script(before="    model = nn.DataParallel(model)"))
    assert "`DataParallel`" in always.detail


def test_data_parallel_under_a_condition(audited: Auditor) -> None:
    """By a number that an option gives through the environment, and by the GPUs of the machine."""
    option = "parser.add_argument('--gpu', default='{}')"
    wrap = (
        "    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu\n"
        "    n_gpus = len(os.environ['CUDA_VISIBLE_DEVICES'].split(','))\n"
        "    if n_gpus > 1:\n        model = nn.DataParallel(model)"
    )
    one = measure(audited, "distributed", script(before=wrap, args=option.format("0"), after="import os"))
    expected = "one process on one device, default of `--gpu`; `DataParallel` if `n_gpus > 1`"
    assert (one.state, one.detail) == (OFF, expected)
    code = script(before=wrap, args=option.format("0,1"), after="import os")
    expected = "`DataParallel` if `n_gpus > 1`, default of `--gpu`: one process drives all GPUs"
    assert measure(audited, "distributed", code).detail == expected
    assert [gap.key for gap in audited({"train.py": code}).gaps if gap.key == "distributed"]
    counted = "    if torch.cuda.device_count() > 1:\n        model = nn.DataParallel(model)"
    found = measure(audited, "distributed", script(before=counted))
    expected = "`DataParallel` if `torch.cuda.device_count() > 1`: one process drives all GPUs"
    assert found.detail == expected
    at_top = "if __name__ == '__main__':\n    model = nn.DataParallel(model)\n    main()"
    found = measure(audited, "distributed", script(after=at_top))
    assert found.detail == "`DataParallel`: one process drives all GPUs"
    given = "    model = nn.DataParallel(model) if args.several else model"
    code = script(before=given, args="parser.add_argument('--several', action='store_true')")
    expected = "one process on one device, default of `--several`; `DataParallel` if `args.several`"
    assert measure(audited, "distributed", code).detail == expected
    assert not [gap.key for gap in audited({"train.py": code}).gaps if gap.key == "distributed"]


def test_gradients_averaged_by_hand(audited: Auditor) -> None:
    helper = """
def average_gradients(model):
    for p in model.parameters():
        torch.distributed.all_reduce(p.grad)
"""
    code = script(after=helper, step="        loss = model(x).sum()\n        average_gradients(model)")
    assert measure(audited, "distributed", code).state is ON
    reported = "        loss = model(x).sum()\n        torch.distributed.all_reduce(loss)"
    assert measure(audited, "distributed", script(step=reported)).state is OFF


def test_what_stands_in_an_error_handler_does_not_run_by_default(audited: Auditor) -> None:
    step = """\
        try:
            loss = model(x).sum()
        except torch.cuda.OutOfMemoryError:
            model.gradient_checkpointing_enable()
            loss = model(x).sum()"""
    found = measure(audited, "gradient_checkpointing", script(step=step))
    assert found.state is OFF and "only after an error" in found.detail


def test_weights_in_half_precision_are_no_mixed_precision(audited: Auditor) -> None:
    """AdamW steps the bfloat16 weights themselves: it is said, and not counted among what is good."""
    train = """
        import torch
        from torch import nn
        from transformers import AutoModelForCausalLM


        def main():
            model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            for batch in load():
                {}
                loss.backward()
                optimizer.step()


        if __name__ == "__main__":
            main()
    """
    plain = audited({"train.py": train.format("loss = model(**batch).loss")})
    (row,) = (m for m in plain.entries[0].measures if m.key == "precision")
    assert row.state is State.ON and "not mixed: loaded with `torch_dtype`" in row.detail
    assert "Mixed precision" not in {good.title for good in plain.good}
    assert "precision" not in {gap.key for gap in plain.gaps}

    cast = 'with torch.autocast("cuda"):\n                    loss = model(**batch).loss'
    mixed = audited({"train.py": train.format(cast)})
    (row,) = (m for m in mixed.entries[0].measures if m.key == "precision")
    assert row.detail.startswith("autocast")
    assert "Mixed precision" in {good.title for good in mixed.good}


def test_a_finding_of_high_severity_in_an_evaluation_is_moderate(audited: Auditor) -> None:
    """A review calls it high: below advice about one flag it would not be read. No listed script runs it: it is not critical."""
    audit = audited(
        {
            "evaluate.py": """
                import torch


                def evaluate(model, loader):
                    model.eval()
                    right = 0
                    for images, labels in loader:
                        right += (model(images.cuda()).argmax(1) == labels.cuda()).sum()
                    return right
            """
        }
    )
    (found,) = (w for w in audit.findings if w.finding.rule == "PTO501")
    assert (found.finding.severity, found.level, found.reason) == ("high", "moderate", "for each batch")


SPREADS = """
from accelerate import Accelerator
from torch import nn

class Engine:
    def __init__(self, model, options: dict = dict()):
        self.accelerator = Accelerator(gradient_accumulation_steps=1, **options)
        self.model = model

    def train(self, loader, optimizer):
        for batch in loader:
            loss = self.model(batch)
            self.accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

if __name__ == "__main__":
    Engine(nn.Linear(8, 8){}).train(data, optimizer)
"""


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [
        ("", UNKNOWN, "`accelerate launch` or its configuration sets it"),
        (', {"mixed_precision": "bf16"}', ON, "bf16"),
        (", **settings", UNKNOWN, "`**` in the call"),
    ],
)
def test_a_dictionary_that_is_spread_has_its_default(
    audited: Auditor, given: str, state: State, said: str
) -> None:
    row = measure(audited, "precision", SPREADS.format(given))
    assert (row.state, said in row.detail) == (state, True), row.detail


def test_a_vocoder_of_another_package_has_no_attention_of_transformers(audited: Auditor) -> None:
    code = script(before="    vocoder = bigvgan.BigVGAN.from_pretrained('v2')")
    imports = "from {} import bigvgan\nfrom transformers import pipeline\n"
    row = measure(audited, "attention", imports.format("third_party.BigVGAN") + code)
    assert row.state is NONE, row.detail
    assert measure(audited, "attention", imports.format("optimum") + code).state is UNKNOWN


def test_ddp_behind_a_switch_that_no_command_gives_is_off(audited: Auditor) -> None:
    option = "parser.add_argument('--distributed', action='store_true')"
    wrap = (
        "    if torch.cuda.device_count() == 1:\n        pass\n"
        "    elif args.distributed:\n        model = nn.parallel.DistributedDataParallel(model)\n"
        "    else:\n        model = nn.DataParallel(model)"
    )
    found = measure(audited, "distributed", script(before=wrap, args=option))
    assert (found.state, found.detail) == (OFF, "`DataParallel`: one process drives all GPUs")
    set_by_launcher = wrap.replace(
        "    if torch", "    args.distributed = int(os.environ['WORLD_SIZE']) > 1\n    if torch", 1
    )
    assert measure(audited, "distributed", script(before=set_by_launcher, args=option)).state is ON
