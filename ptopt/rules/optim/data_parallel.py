from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of

_OFFERED = re.compile(r"DistributedDataParallel|init_process_group|\bDDP\b|accelerate|FSDP|fully_shard")
_EVALUATES = re.compile(r"\.eval\(\)")
_NO_TRAINING = re.compile(r"(^|_)(load|predict|infer|inference|test|eval|evaluate|demo|generate)(_|$)", re.I)
_NAMES = frozenset(
    (
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
    )
)


class DataParallel(Rule):
    """A model is trained on several GPUs with `nn.DataParallel`.

    ## What it does
    Finds `nn.DataParallel(model)` in a file that trains and that offers no `DistributedDataParallel`.

    ## Why it is slow
    One Python process drives all GPUs: on every step it copies the weights to each of them, scatters the batch,
    fights over the interpreter lock during the forward pass and gathers outputs on the first GPU.
    `DistributedDataParallel` has one process per GPU and exchanges gradients only, behind the backward pass.

    ## Fix safety
    There is no fix: the script has to be started with torchrun, and the loader needs a `DistributedSampler`.

    ## Sources
    - [torch.nn.DataParallel: use DistributedDataParallel instead](https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html)
    """

    id = "PTO706"
    name = "data-parallel"
    family = "optim"
    triggers = ("DataParallel",)
    nodes = (ast.Call,)
    partly = frozenset({"torchrun"})
    when_wrong = "the script must run in one process, or on one GPU"

    VALID = (
        "model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])",
        """
        if isinstance(model, nn.DataParallel):
            model = model.module
        optimizer.step()
        """,
        """
        model = nn.DataParallel(model, device_ids=[0]).cuda()
        for x, y in loader:
            criterion(model(x), y).backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            model = nn.DataParallel(model).cuda()  # !
            # ~ torch.distributed.init_process_group("nccl")  # start the script with torchrun
            # ~ rank = int(os.environ["LOCAL_RANK"])
            # ~ model = nn.parallel.DistributedDataParallel(model.to(rank), device_ids=[rank])
            for x, y in loader:
                criterion(model(x), y).backward()
                optimizer.step()
        """),
        Invalid("""
            class Trainer:
                def __init__(self, model, args):
                    if torch.cuda.device_count() > 1:
                        model = torch.nn.DataParallel(model)  # !
                    self.model = model

                def step(self, x, y):
                    self.criterion(self.model(x), y).backward()
                    self.optimizer.step()
        """),
        Invalid("""
            from torch.nn import DataParallel

            generator = DataParallel(generator, device_ids=opt.gpu_ids)  # !
            loss(generator(z)).backward()
            optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or file.imports.qualified(node.func) not in _NAMES:
            return
        devices = keyword_of(node, "device_ids") or (node.args[1] if len(node.args) > 1 else None)
        if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:
            return
        function = file.index.function_of(node)
        if function is not None and _NO_TRAINING.search(function.name):
            return
        offered = file.search(_OFFERED)
        starter = "torchrun" if file.facts.has("torchrun") else "`python -m torch.distributed.launch`"
        trains = any(file.context.marks_in(f) for f in (None, *file.calls.functions))
        if not trains and file.search(_EVALUATES):
            return  # inference, where nothing else spreads a batch as simply
        yield Problem(
            node,
            "`DataParallel` copies the weights to every GPU on every step and drives all of them from one Python "
            f"process. Wrap the model in `DistributedDataParallel` (one process per GPU, started with {starter}).",
            0.7 if trains and not offered else 0.45,
            facts={"ddp_offered": float(offered), "file_trains": float(trains)},
        )
