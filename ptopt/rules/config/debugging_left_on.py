from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid
from ptopt.rules.configs import Block, ConfigFile, Setting, SettingRule

_TRAINER = (
    Setting(
        ("full_determinism",),
        (True,),
        "{value}: deterministic kernels are slower, and it sets CUDA_LAUNCH_BLOCKING, so that the host waits for each "
        "kernel. `seed` alone is enough for training runs.",
        "false",
        "bitwise equal runs are not needed",
    ),
    Setting(
        ("skip_memory_metrics",),
        (False,),
        "{value}: memory is traced around each stage of training, which slows it down.",
        "true",
        "the memory metrics are not needed",
    ),
    Setting(
        ("include_num_input_tokens_seen",),
        (True,),
        "{value}: the tokens of all ranks are counted in each step, which takes a collective and a wait.",
        "false",
        "the count is not needed",
        0.5,
    ),
    Setting(
        ("debug",), ("underflow_overflow",), "{value}: hooks look at each activation of each step.", '""'
    ),
    Setting(
        ("torch_empty_cache_steps",),
        (1, 2, 3, 4, 5),
        "{value}: the cache of the allocator is emptied all the time, so memory comes from the driver again, which waits.",
    ),
)
_CLOCK = (
    "{value}: timers of forward, backward and step are read in each micro-step, and the host waits for them. It is meant for "
    "finding out where time goes."
)


class DebuggingLeftOn(SettingRule):
    """A configuration leaves a debugging or profiling option on.

    ## What it does
    Finds options that exist for debugging and cost time in each step: `detect_anomaly` and `profiler` of Lightning,
    `wall_clock_breakdown` and `memory_breakdown` of DeepSpeed, `full_determinism`, `debug`,
    `skip_memory_metrics: false` and a frequently emptied cache of Hugging Face trainers.

    ## Why it is slow
    They wait for the GPU at each step, record each operation, or choose slower kernels.

    ## Fix safety
    Unsafe: what the option reported is gone.

    ## Sources
    - [DeepSpeed: configuration](https://www.deepspeed.ai/docs/config-json/)
    - [Lightning: Trainer](https://lightning.ai/docs/pytorch/stable/common/trainer.html)
    - [PyTorch: anomaly detection](https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection)
    """

    id = "PTO016"
    name = "debugging-left-on"
    family = "config"
    kinds = frozenset({"transformers", "llamafactory", "lightning", "deepspeed"})
    prior = 0.6
    when_wrong = "the configuration is for debugging or measuring"
    settings: ClassVar[Mapping[str, tuple[Setting, ...]]] = {
        **dict.fromkeys(("transformers", "llamafactory"), _TRAINER),
        "lightning": (
            Setting(
                ("detect_anomaly",),
                (True,),
                "{value}: each operation records a trace and each gradient is checked for NaN, which takes several times "
                "as long.",
                "false",
                "no NaN is being looked for",
                0.85,
            ),
            Setting(
                ("profiler",),
                ("advanced", "pytorch"),
                "{value}: each function or operation of the whole training is recorded.",
                "null",
                "the profile is not needed",
            ),
        ),
        "deepspeed": (
            Setting(
                ("wall_clock_breakdown",),
                (True,),
                _CLOCK,
                "false",
                "the breakdown is not needed",
                0.35,  # one wait in each micro-step: well under a percent where a step takes seconds
            ),
            Setting(
                ("memory_breakdown",),
                (True,),
                "{value}: Python collects garbage and memory is logged before and after each forward and backward pass.",
                "false",
                "it is not needed",
            ),
        ),
    }

    VALID = (
        """
        trainer:
          max_epochs: 3
          devices: 1
          detect_anomaly: false
          profiler: null
        """,
        """
        {"zero_optimization": {"stage": 2}, "wall_clock_breakdown": false}
        """,
        """
        detect_anomaly: true
        """,
    )
    INVALID = (
        Invalid("""
            {
              "zero_optimization": {"stage": 2},
              "wall_clock_breakdown": true  # !
              # + "wall_clock_breakdown": false
            }
        """),
        Invalid("""
            trainer:
              max_epochs: 3
              devices: 1
              detect_anomaly: true  # !
              # + detect_anomaly: false
        """),
        Invalid("""
            per_device_train_batch_size: 8
            full_determinism: true  # !
            # + full_determinism: false
        """),
    )

    def excused(self, block: Block, setting: Setting, file: ConfigFile) -> bool:
        name = file.path.lower()
        return any(word in name for word in ("debug", "profil", "determin", "bench"))
