from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import is_literal, replace_node
from ptopt.rules.debug._switches import always_on, neighbours_mention

_REPRODUCIBLE = re.compile(r"seed|determin\w*(?!\w|\s*=\s*False)|reproduc", re.I)
_SWITCH = re.compile(
    r"benchmark|disable|quirk", re.I
)  # a function, or a file, whose purpose is to set the flag
_RAGGED = re.compile(r"pad_sequence|tokeniz|bucket|dynamic_shape|multi_?scale", re.I)


_TRAINS = re.compile(r"\.backward\(|\boptim|\.fit\(|train\(")
_INFERS = re.compile(r"infer|synthes|predict|demo|generate|transcri", re.I)


class CudnnAutotuneOff(Rule):
    """The search for the fastest convolution kernels is switched off by hand.

    ## What it does
    Finds `torch.backends.cudnn.benchmark = False` where no seed or deterministic switch beside it gives a reason.

    ## Why it is slow
    With the flag on, cuDNN tries its kernels once for each input shape and keeps the fastest. Off, it takes a guess.
    False is the default: the line states a choice that costs time when shapes are fixed.

    ## When this is wrong
    When input shapes change from step to step (each new shape is searched again), or when results must repeat bit by
    bit.

    ## Fix safety
    Unsafe: it assumes that input shapes seldom change.

    ## Sources
    - [PyTorch performance tuning guide: enable cuDNN auto-tuner](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    - [pytorch#2759: the cost with changing shapes](https://github.com/pytorch/pytorch/issues/2759)
    """

    id = "PTO903"
    name = "cudnn-autotune-off"
    family = "debug"
    triggers = ("benchmark = False", "benchmark=False")
    requires = ("cudnn",)
    nodes = (ast.Assign,)
    when_wrong = "input shapes change from step to step, or results must repeat bit by bit"

    VALID = (
        """
        def set_seed(seed):
            torch.manual_seed(seed)
            torch.backends.cudnn.benchmark = False
        """,
        """
        if args.deterministic:
            torch.backends.cudnn.benchmark = False
        """,
        """
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        """,
        "torch.backends.cudnn.benchmark = True",
    )
    INVALID = (
        Invalid("""
            def detect(opt):
                device = select_device(opt)
                torch.backends.cudnn.benchmark = False  # !
                # + torch.backends.cudnn.benchmark = True
                return Detector(opt).to(device)
        """),
        Invalid("""
            if __name__ == "__main__":
                torch.backends.cudnn.enabled = True
                torch.backends.cudnn.benchmark = False  # !
                # + torch.backends.cudnn.benchmark = True
                train()
        """),
        Invalid("""
            import torch.backends.cudnn as cudnn

            cudnn.benchmark = False  # !
            # + cudnn.benchmark = True
            net = build().cuda()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or not is_literal(node.value, False):
            return
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "benchmark":
            return
        # A star import may bring `torch`: then the text is all there is.
        name = file.imports.qualified(target) or file.source(target)
        if name != "torch.backends.cudnn.benchmark" or not always_on(node, file):
            return
        if _SWITCH.search(file.index.symbol_of(node)) or _SWITCH.search(file.path):
            return
        if neighbours_mention(_REPRODUCIBLE, node, file) or _REPRODUCIBLE.search(file.index.symbol_of(node)):
            return
        if any(_REPRODUCIBLE.search(file.line(n)) for n in range(max(1, node.lineno - 2), node.lineno + 1)):
            return
        if not file.search(_TRAINS) and _INFERS.search(file.path):
            return  # one input after the other, each of a shape of its own
        yield Problem(
            node,
            "`benchmark = False` keeps cuDNN from searching for the fastest convolution kernels. Set it to True if "
            "the input shapes stay the same from step to step.",
            0.5 if file.search(_RAGGED) else 0.65,
            fix=Fix(Safety.UNSAFE, (replace_node(file, node.value, "True"),), "input shapes seldom change"),
        )
