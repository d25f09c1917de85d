"""Kinds of false statements that people found who tried ptopt on their repositories: what is said is true of the code."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.rules.examples import as_change, as_file
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository
from ptopt.verify import apply_edits
from tests.rules.messages import messages

SILENT = {
    "a dictionary of metrics is no tensor to copy": (
        "results-pile-up",
        """
        @torch.no_grad()
        def evaluate(net, tiles):
            results = []
            for part in tiles:
                found = net(part)
                print(found["height"])
                results.append(found)
            return results
        """,
    ),
    "a loop over loaders goes through data sets": (
        "results-pile-up",
        """
        @torch.no_grad()
        def evaluate_all(model, names, loaders):
            results = []
            for name, data_loader in zip(names, loaders):
                result = model(data_loader)
                results.append(result)
            return results
        """,
    ),
    "what a collective fills is no constant": (
        "constant-rebuilt-every-step",
        """
        def sizes_of_all(x: torch.Tensor, world_size):
            sizes = [torch.LongTensor([0]).to("cuda") for _ in range(world_size)]
            torch.distributed.all_gather(sizes, x)
            return [int(size) for size in sizes]
        """,
    ),
    "a number of a row picks a list, and no part of the row": (
        "per-sample-loop",
        """
        class Net(pl.LightningModule):
            def training_step(self, batch, index):
                nlls = self.net(batch).softmax(-1)
                rare = (batch > 9).float().mean(-1)
                for i in range(nlls.shape[0]):
                    bin_id = min(int(rare[i].item() * 9), 8)
                    self.bins[bin_id].append(nlls[i].mean().item())
                return nlls.mean()
        """,
    ),
    "batches of JAX go to no device of torch": (
        "loader-without-pinning",
        """
        import jax
        from torch.utils.data import DataLoader

        def main(dataset, collate, encode):
            loader = DataLoader(dataset, batch_size=8 * len(jax.devices()), collate_fn=collate)
            for ids, batch in loader:
                encode(batch)
        """,
    ),
    "arrays are not pinned": (
        "loader-without-pinning",
        """
        from torch.utils.data import DataLoader
        from transformers import DataCollatorWithPadding

        def train_dataloader(dataset, tokenizer):
            collate = DataCollatorWithPadding(tokenizer, return_tensors="np")
            return DataLoader(dataset, batch_size=8, collate_fn=collate)
        """,
    ),
    "the loader is told what its batches lack": (
        "batch-copy-waits",
        """
        from torch.utils.data import DataLoader

        def main(dataset, model, device):
            loader = DataLoader(dataset, batch_size=8)
            with torch.no_grad():
                for (ids, batch) in tqdm(loader):
                    for k, v in batch.items():
                        batch[k] = v.to(device)
                    print(ids, model(**batch))
        """,
    ),
    "the wait is what the helper is for": (
        "synchronize-every-step",
        """
        import torch.distributed as dist

        def synchronize():
            if not dist.is_available() or dist.get_world_size() == 1:
                return
            dist.barrier()

        for x in loader:
            loss = model(x.to(device))
            loss.backward()
            optimizer.step()
            synchronize()
        """,
    ),
}


@pytest.mark.parametrize(("name", "code"), SILENT.values(), ids=list(SILENT))
def test_nothing_is_proposed(name: str, code: str) -> None:
    assert messages(name, code) == []


BRANCHES = """
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
{}
"""


@pytest.mark.parametrize(
    "code",
    [
        """
        if mean:
            kept.append(loss.mean().cpu())
        else:
            kept.append(loss.sum().cpu())
        """,
        """
        if mean:
            kept.append(loss.mean().cpu())
            continue
        kept.append(loss.sum().cpu())
        """,
        "kept.append(loss.mean().cpu() if mean else loss.sum().cpu())",
    ],
)
def test_of_two_branches_one_runs(code: str) -> None:
    found = messages("host-copy-every-step", BRANCHES.format(_indented(code, 8)))
    assert len(found) == 2
    assert not any("also waits" in message for message in found)


def test_two_conditions_may_both_hold() -> None:
    code = """
    if wide:
        kept.append(loss.mean().cpu())
    if deep:
        kept.append(loss.sum().cpu())
    """
    first, second = messages("host-copy-every-step", BRANCHES.format(_indented(code, 8)))
    assert "also waits" in first and "also waits" in second


def test_two_branches_in_an_inner_loop_may_both_run_in_one_step() -> None:
    code = """
    for part in parts:
        if part:
            kept.append(loss.mean().cpu())
        else:
            kept.append(loss.sum().cpu())
    """
    first, second = messages("host-copy-every-step", BRANCHES.format(_indented(code, 8)))
    assert "also waits" in first and "also waits" in second


HELPER = """
    class Diffusion(pl.LightningModule):
        def __init__(self, config):
            self.kind = config.kind
            self.net = nn.Linear(8, 8)

        def training_step(self, x, index):
            out = self.net(x)
            {}

        def entropy(self, out: torch.Tensor):
            return out[out > 0].exp().mean()
"""


def test_a_call_under_a_condition_is_not_made_by_each_step() -> None:
    branch = "if self.kind == 'sedd': return self.entropy(out)\n            return out.mean()"
    (chosen,) = messages("size-read-from-device", HELPER.format(branch))
    assert "each training step makes where `self.kind == 'sedd'` (line" in chosen
    (always,) = messages("size-read-from-device", HELPER.format("return self.entropy(out)"))
    assert "each training step makes (line" in always


def test_an_assignment_through_a_mask_and_an_index_waits() -> None:
    code = """
        class Net(nn.Module):
            def forward(self, logits, xt):
                logits = logits - torch.logsumexp(logits, -1, keepdim=True)
                kept = xt != self.mask_index
                logits[kept] = 0
                logits[kept, xt[kept]] = 0
                return logits
    """
    (found,) = messages("size-read-from-device", code)
    assert "`logits[kept, xt[kept]]`" in found


def test_no_method_of_a_tensor_is_called_on_a_dictionary() -> None:
    code = """
        import torch.distributed as dist

        for images, targets in loader:
            losses = model(images.to(device), targets)
            loss = sum(value for value in losses.values())
            reduced = dist_util.reduce_loss_dict(losses)
            loss.backward()
            optimizer.step()
            meters.update(**reduced)
    """
    (found,) = messages("metric-reduced-every-step", code)
    assert "values of `losses`" in found and "losses.detach()" not in found


BLOCK = """
    class Separable(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
"""
HEAD = """
from torch import nn
from layers import Separable

class Head(nn.Module):
    def __init__(self):
        self.part = Separable()
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                {}
"""


@pytest.mark.parametrize(
    ("other", "said", "fixed"),
    [
        (HEAD.format("nn.init.zeros_(m.bias)"), True, False),
        (HEAD.format("m.bias.data.zero_()"), True, False),
        (HEAD.format("if m.bias is not None: m.bias.data.zero_()"), False, True),
        (HEAD.format("nn.init.ones_(m.weight)").replace("Conv2d", "BatchNorm2d"), False, True),
        (HEAD.format("nn.init.zeros_(m.bias)").replace("Separable", "Other"), False, False),
    ],
)
def test_a_bias_that_other_code_sets_is_not_taken_away(other: str, said: bool, fixed: bool) -> None:
    rule = find_rule("linear-bias-before-batchnorm")
    assert rule is not None
    around = Repository({"head.py": other.encode()})
    file = SourceFile.parse("layers.py", as_file(BLOCK).encode(), repository=around)
    (hit,) = run(file, [rule()])
    assert ("Line 10 of head.py sets the bias" in hit.problem.message) is said
    assert (hit.problem.fix is not None) is fixed


STEP = """
    def train(net, loader, optimizer):
        for x, y in loader:
            loss = net(x.cuda(), y.cuda()).mean()
            loss.backward()
            optimizer.step()
"""
CONVOLUTIONS = "self.stem = nn.Conv2d(3, 64, 3)\n"
TF32 = "let matrix products use TF32, as convolutions do by default"


@pytest.mark.parametrize(
    ("other", "tf32", "threads"),
    [
        ("", True, False),
        (CONVOLUTIONS, False, False),
        (f"{CONVOLUTIONS}self.mix = nn.Linear(64, 64)\n", True, False),
        (f"{CONVOLUTIONS}from timm.models import create_model\n", True, False),
        (f"{CONVOLUTIONS}model = nn.DataParallel(net).cuda()\n", False, True),
        ("model = nn.parallel.DistributedDataParallel(net)\n", True, False),
    ],
)
def test_float32_is_advised_upon_as_the_network_computes(other: str, tf32: bool, threads: bool) -> None:
    rule = find_rule("full-precision-training")
    assert rule is not None
    around = Repository({"model.py": other.encode()})
    file = SourceFile.parse("engine.py", as_file(STEP).encode(), repository=around)
    (hit,) = run(file, [rule()])
    message = hit.problem.message
    assert (TF32 in message, "no TF32 is enabled for matrix products" in message) == (tf32, tf32)
    assert ("Under `DataParallel` put the autocast inside" in message) is threads


SAMPLED = """
    class Sampler(nn.Module):
        def sample(self, x):
            logits = self.forward(x)
            return logits[:, -1, :].argmax(-1)
"""


def test_an_option_of_transformers_is_advised_where_that_may_be_used() -> None:
    (own,) = messages("logits-of-unused-positions", SAMPLED)
    assert own.endswith("Select the position before the head.")
    (used,) = messages("logits-of-unused-positions", f"import transformers\n{textwrap.dedent(SAMPLED)}")
    assert "`logits_to_keep=1` in Transformers" in used


COLLECTED = """
    @torch.no_grad()
    def encode(model, loader, device):
        encoded = []
        for batch in loader:
            output = model(batch.to(device))
            {}
        return encoded
"""


@pytest.mark.parametrize(
    ("on_the_device", "on_the_host", "large"),
    [
        ("encoded.append(output.passages)", "encoded.append(output.passages.cpu())", True),
        ("encoded.append(output)", "encoded.append(output.detach().cpu().numpy())", True),
        ("encoded.append(output.argmax(1))", "encoded.append(output.argmax(1).cpu())", False),
        (
            "y = output.max(1)[1]; encoded.append(y)",
            "y = output.max(1)[1]; encoded.append(y.detach().cpu())",
            False,
        ),
    ],
)
def test_two_rules_agree_on_where_results_are_collected(
    on_the_device: str, on_the_host: str, large: bool
) -> None:
    for code, at_fault in ((on_the_device, large), (on_the_host, not large)):
        said = [
            *messages("results-pile-up", COLLECTED.format(code)),
            *messages("host-copy-every-step", COLLECTED.format(code)),
        ]
        assert bool(said) is at_fault


SUM = """
    def train(model, loader, optimizer, stats, device):
        total, correct = 0.0, 0
        counts = torch.zeros(9, device=device)
        host = torch.zeros(9)
        for i, (x, y) in enumerate(loader):
            out = model(x.to(device))
            loss = F.cross_entropy(out, y.to(device))
            loss.backward()
            optimizer.step()
            {}
            if i % 100 == 0:
                log({})
        {}
"""


@pytest.mark.parametrize(
    ("adds", "every", "after", "fixed"),
    [
        (
            "total += loss.item()",
            "total / 100",
            "return total",
            ["total += loss.detach()", "log(float(total) / 100)", "return float(total)"],
        ),
        ("total += loss.item()", "i", 'print(f"{total:.2f}")', ["total += loss.detach()"]),
        ("total += loss.item(); best = min(best, total)", "i", "", None),
        ("total += loss.item()", "i", "def now(): return total", None),
        ("stats['loss'] += loss.item()", "i", "return stats", None),
        ("stats['loss'] += loss.item()", "i", "", ["stats['loss'] += loss.detach()"]),
        ("counts[i] += loss.item()", "counts", "", ["counts[i] += loss.detach()"]),
        ("counts[i] += (out == x).sum().item()", "counts", "", ["counts[i] += (out == x).sum()\n"]),
        ("host[i] += loss.item()", "host", "", None),
    ],
)
def test_what_reads_a_sum_reads_a_number(adds: str, every: str, after: str, fixed: list[str] | None) -> None:
    code = as_file(SUM.format(adds, every, after))
    rule = find_rule("item-every-step")
    assert rule is not None
    hit, *_ = run(SourceFile.parse("train.py", code.encode()), [rule()])
    fix = hit.problem.fix
    if fixed is None:
        assert fix is None
        return
    assert fix is not None
    after_it = apply_edits(code, sorted(fix.edits))
    assert all(line in after_it for line in fixed)
    assert after_it.count("float(") == sum("float(" in line for line in fixed)


PER_SAMPLE = """
    class Pool(nn.Module):
        def forward(self, weights, x, lengths):
            weights = weights.softmax(0)
            pooled = []
            for i in range(x.size(0)):
                pooled.append(weights[i] * {}.mean(0))
            return torch.stack(pooled)
"""


def test_the_mask_is_as_long_as_what_is_cut() -> None:
    (found,) = messages("per-sample-loop", PER_SAMPLE.format("x[i, : lengths[i]]"))
    assert "`torch.arange(x.size(1)) < lengths[:, None]`" in found


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ("permute(0, 3, 1, 2).float()", ".scatter_(1, mask.unsqueeze(1), 1)`"),
        ("permute(2, 0, 1).float()", ".scatter_(0, mask.unsqueeze(0), 1)`"),
        ("float().movedim(-1, 1).contiguous()", ".scatter_(1, mask.unsqueeze(1), 1)`"),
        ("transpose(-1, -2).float()", ".scatter_(-2, mask.unsqueeze(-2), 1)`"),
        ("transpose(1, 2).float()", "`scatter_` of ones,"),  # which dimension is the last is not known
        ("permute(2, 1, 0).float()", "`scatter_` of ones,"),
        ("permute(2, 0, 1).unsqueeze(0).float()", "`scatter_` of ones,"),
    ],
)
def test_ones_are_scattered_along_the_dimension_of_the_classes(moves: str, said: str) -> None:
    (found,) = messages("one-hot-in-full", f"def hot(mask, n):\n    return F.one_hot(mask, n).{moves}\n")
    assert said in found


@pytest.mark.parametrize(
    ("before", "after", "keep"),
    [
        ("Adam(p, foreach=True)", "Adam(p, foreach=False)", "Keep `foreach=True`."),
        ("Adam(p, fused=True)", "Adam(p)", "Keep `fused=True`."),
        ("FusedAdam(p)", "Adam(p)", "Keep `FusedAdam`, or pass `fused=True` to that of torch."),
    ],
)
def test_what_was_there_is_what_is_to_be_kept(before: str, after: str, keep: str) -> None:
    code = f"from torch.optim import Adam\n\ndef build(p):\n    # - return {before}\n    return {after}\n"
    change = as_change("train.py", code)
    config = Config.model_validate({"select": ["regressions"], "min-confidence": 0.0})
    (finding,) = review_files([change], config=config, facts=NO_FACTS, limit_to_change=True).findings
    assert keep in finding.message


def test_a_loop_of_the_set_up_is_what_repeats_a_line() -> None:
    code = """
        def main():
            for layer in net.layers:
                quantize(layer)
                torch.cuda.empty_cache()

        if __name__ == "__main__":
            main()
    """
    (found,) = messages("cache-cleared-every-step", code)
    assert "runs in each iteration of the loop at line" in found


def _indented(code: str, by: int) -> str:
    return textwrap.indent(textwrap.dedent(code).strip("\n"), " " * by)
