"""What each row of an audit's table means, and what its states mean: the text that a model judges rows by.

`docs/audit.md` says the same to people, in *How to read it*.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STATES = """\
A state is that of the run that the repository documents.
- Commands in shell or Slurm scripts that train with this script count most, then those in the README and the pages that it links;
  then the configuration files that these name; then the default of the option (argparse, dataclass, YAML, constant). An option that
  is off by default and that no command switches on is off; name the option. Commands that only evaluate do not count.
- Where documented commands or configurations differ, the row is unknown and names the values, unless all of them mean the same
  state ("on, 4 or 8").
- The pinned version of a library decides what its default is (requirements, environment file, README); without a pin the newest one
  that the code runs with. You know the defaults of public libraries in their versions: use them, and cite the call and the pin.
- The Python that a README, an environment file, an image or a launch command asks for bounds torch (3.6: 1.10, 3.7: 1.13, 3.8: 2.4)
  and transformers (3.6: 4.18, 3.7: 4.30, 3.8: 4.46): look for it, and name it as the reason. Several Dockerfiles or files that pin
  different versions are a range: a row holds for all of it, or is unknown and says which versions mean what.
- Never speak of an option, class or default that the pinned version does not have yet (`tf32` came with transformers 4.13, `optim`
  with 4.16, `torch_compile` with 4.26, `fused` of Adam with torch 1.13, of AdamW with 2.0, of SGD with 2.3): say what that version does.
- A command sets an option only where it passes it; otherwise the default decides.
- A script that starts another script, which is given to it as an argument, decides only what it does itself: the other rows are
  unknown, "the script given as `training_script` decides".
- on / off: the measure is or is not in effect for the training that runs. Code that this run does not reach does not count.
- not applicable: the training has nothing that the measure could be about, or the library or hardware that is pinned does not have it.
- unknown: a value that stands nowhere in the repository decides (a launcher's own configuration, a file that is missing). It is no
  answer where the code, a default or a command tells.
- What only a launcher decides counts as on: `DistributedDataParallel` behind a test of the world size is on, "when several
  processes are started"; but off where every documented command starts one process.
- The sentence beside the state must be true too: the reason, the values, which option or default they come from. A right state with
  a false or misleading sentence is a wrong row. Check each row's sentence on its own, also where the state is right.
"""

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "precision": "on: the forward pass of the training computes in float16 or bfloat16: autocast, apex O1/O2, `.half()` of the network, "
        "the option of a trainer, DeepSpeed's or Megatron's section. Say the type. off: float32 all through.",
        "tf32": "on: float32 matrix products may use TF32: `allow_tf32 = True`, `set_float32_matmul_precision('high'|'medium')`, a trainer's "
        "option, or the default of torch 1.7 to 1.11. off: the default since torch 1.12. not applicable: torch before 1.7 or CUDA before 11 "
        "is pinned. TF32 of convolutions (on by default) is not meant.",
        "attention": "Attention over tokens or patches in the network that is trained or run in its training step. on: a fused kernel computes "
        "it: `scaled_dot_product_attention`, FlashAttention, xFormers, `nn.MultiheadAttention` without its weights, or a library whose pinned "
        "version does so by default. off: products, softmax and product in steps. not applicable: no such attention (squeeze-excite and "
        "gates are none).",
        "compile": "on: `torch.compile` or Dynamo compiles the network in that run; TorchScript does not count. off: it does not. not applicable: "
        "torch before 2.0 is pinned.",
        "workers": "`num_workers` of the loader of training data. on: above 0, say the number; loaders of a library count. off: 0. not "
        "applicable: no DataLoader feeds the training.",
        "pin_memory": "`pin_memory` of that loader; default False in torch, True in some libraries. not applicable: no DataLoader, or its "
        "samples are on the device already.",
        "persistent_workers": "`persistent_workers` of that loader; default False in torch. not applicable: no DataLoader, or no workers.",
        "prefetch": "on: workers load ahead (`prefetch_factor`, 2 for each worker by default), or a prefetcher of the code or a library does. "
        "not applicable: no DataLoader, or no workers and no prefetcher.",
        "non_blocking": "The copies of the training batch to the device. on: with `non_blocking=True`, or by a prefetcher on a stream of its own. "
        "off: a copy of the batch in the training step waits, also if others (the images, not the tokens) do not; also where a function or a loader of the code makes it. not applicable: a "
        "trainer or a prepared loader of a library copies the batches, or there is no copy. A copy of outputs or metrics is not meant.",
        "padding": "Sequences of differing length in a batch. on: packed, grouped by length, padded only to the longest of the batch, or cut "
        "from one stream so that nothing is padded. off: padded to a fixed maximum. not applicable: all samples have one size anyway, and "
        "there are no token sequences.",
        "fused_optimizer": "on: `fused=True`, a fused optimizer of apex, DeepSpeed, bitsandbytes or a trainer's default that is one. off: a class of "
        "torch.optim that has a fused update, without it (since torch 2.0 CUDA takes the multi-tensor update by default, before it a loop "
        "over parameters). not applicable: the class has no fused update in the pinned torch, or is the repository's own.",
        "set_to_none": "on: gradients are set to None before a step: the default of `zero_grad()` since torch 2.0, `set_to_none=True`, own code or a "
        "library that does so; say which, `set_to_none=True` in the call goes before the default. off: filled with zeros: the default before torch 2.0, `set_to_none=False`, `grad.zero_()`, a wrapper that does so.",
        "accumulation": "Micro-batches (backward passes) for each step of the optimizer in that run. on: more than one, say how many. off: one, also "
        "where the code could do more.",
        "gradient_checkpointing": "Activations computed again in the backward pass (`torch.utils.checkpoint` and what wraps it). on: for the network or a "
        "part of it in that run. off: not, also where an option could switch it on. Saving weights is not meant.",
        "distributed": "on: DDP, FSDP, DeepSpeed, a pipeline or another strategy over several processes. off: one process, with one device or with "
        "`DataParallel`.",
        "channels_last": "The memory format of 2-d and 3-d convolutions, also of a library's network that runs in the training step. on: "
        "`channels_last`. off: the default. not applicable: no such convolution (1-d ones, or only patches cut by a convolution whose stride is "
        "its kernel). Only the network that the documented run builds counts; where configurations build different ones, unknown.",
        "cudnn_benchmark": "on: `torch.backends.cudnn.benchmark` is set in that run, by the code or its library. off: not set, or set to False. not "
        "applicable: no convolution runs (1-d ones count), even if it is set.",
        "evaluation": "Evaluation, validation or sampling that the training script runs. on: under `no_grad`, `inference_mode` or a library that does so. "
        "off: the forward pass of an evaluation records a graph. not applicable: that run evaluates nothing.",
        "saving": "Weights or the state of the training written to disk. on: say how often (each n steps, each n seconds, each epoch, when best, second "
        "best, once at the end), every way in which the run writes, and which option or constant says so. off: nothing of the network is written in that run.",
        "monitoring": "on: an experiment tracker (TensorBoard, Weights & Biases, MLflow, ...) or a profiler is active in that run; say which. off: none "
        "is, or it needs an option that no command gives; lines of text and progress bars are none.",
    }
)
"""Key of a measure -> what its states mean."""
