from __future__ import annotations

import re

from ptopt.rules.base import Invalid
from ptopt.rules.regressions._base import Regression


class CudnnBenchmarkRemoved(Regression):
    """A change stops cuDNN from choosing the fastest convolution."""

    id = "PTO960"
    name = "cudnn-benchmark-removed"
    most_stated = 0.4
    triggers = ("torch.",)
    measure = re.compile(
        r"cudnn\.benchmark\s*=\s*True|set_float32_matmul_precision\([\"'](high|medium)|allow_tf32\s*=\s*True"
    )
    still = re.compile(
        r"cudnn\.benchmark\s*=(?!\s*False\b)|set_float32_matmul_precision\((?![\"']highest)|allow_tf32\s*=(?!\s*False\b)"
    )
    work = re.compile(r"torch\.|cudnn|cuda|seed")
    work_says_all = True
    prior = 0.4
    message = (
        "Convolutions and matrix products then use the defaults instead of what was measured or allowed to be the "
        "fastest. Keep the line where input sizes are fixed."
    )
    why = (
        "The autotuner measures each convolution once and keeps the fastest algorithm; TF32 multiplies float32 "
        "matrices on tensor cores."
    )
    source = (
        "[PyTorch performance tuning guide: enable cuDNN auto- "
        "tuner](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)"
    )
    when_wrong = "input sizes vary, or results have to be the same from run to run"

    VALID = (
        """
        torch.backends.cudnn.benchmark = True
        """,
        """
        def setup(fast):
            # - torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.benchmark = fast
            torch.manual_seed(0)
        """,
        """
        # - def setup():
        # -     torch.backends.cudnn.benchmark = True
        def other():
            return 1
        """,
    )
    INVALID = (
        Invalid("""
            def setup():
                # - torch.backends.cuda.matmul.allow_tf32 = True
                torch.backends.cuda.matmul.allow_tf32 = False  # !
                torch.manual_seed(0)
        """),
        Invalid("""
            def setup(seed):
                # - torch.backends.cudnn.benchmark = True
                torch.manual_seed(seed)  # !
        """),
        Invalid("""
            def setup(device):
                torch.manual_seed(0)
                # - torch.backends.cudnn.benchmark = True
                return torch.device(device)  # !
        """),
        Invalid("""
            def setup():
                # - torch.backends.cuda.matmul.allow_tf32 = True
                torch.manual_seed(0)  # !
        """),
    )
