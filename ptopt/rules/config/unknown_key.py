from __future__ import annotations

import difflib
from collections.abc import Iterator

from ptopt.configs.schema import known_keys, library_of
from ptopt.configs.values import Mapping
from ptopt.findings import Edit
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Fix, Safety

_ALIKE = 0.88
_MOST, _LONGEST = 50, 60


class UnknownSetting(ConfigRule):
    """A setting has a name that its library does not know.

    ## What it does
    Finds keys that differ by a letter or two from a setting of axolotl, LLaMA-Factory, accelerate, DeepSpeed or the Lightning
    trainer, and that are none. The names are those of the libraries' own source, in a table that comes with ptopt.

    ## Why it is slow
    Where unknown keys are ignored (axolotl, the top level of DeepSpeed), the option is not in force, and nobody notices;
    elsewhere the run fails at its start.

    ## Fix safety
    Unsafe: the setting comes into force.

    ## Sources
    - The source of the libraries; [benchmarks/config_keys.py](https://github.com/ptopt/ptopt/tree/main/benchmarks/config_keys.py) reads it
    """

    id = "PTO018"
    name = "unknown-setting"
    family = "config"
    kinds = frozenset({"axolotl", "llamafactory", "accelerate", "deepspeed", "lightning"})
    prior = 0.75
    when_wrong = "the installed version of the library has such a setting"

    VALID = (
        """
        {"zero_optimization": {"stage": 2, "overlap_comm": true}, "my_own_note": 1}
        """,
        """
        trainer:
          max_epochs: 2
          devices: 1
          limit_train_batches: 0.5
        """,
        """
        sample_packng: true
        """,
    )
    INVALID = (
        Invalid("""
            {
              "zero_optimization": {
                "stage": 2,
                "overlap_com": true  # !
                # + "overlap_comm": true
              }
            }
        """),
        Invalid("""
            base_model: some/model
            datasets:
              - path: some/data
            num_epochs: 1
            sample_packng: true  # !
            # + sample_packing: true
        """),
        Invalid("""
            trainer:
              max_epochs: 2
              devices: 1
              accumulate_grad_batchs: 4  # !
              # + accumulate_grad_batches: 4
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for block in file.blocks:
            if block.kind not in self.kinds:
                continue
            if (
                block.kind != "deepspeed" or file.document.format == "json"
            ):  # in YAML, others add keys of their own
                yield from _unknown(file, block.kind, block.mapping, block.path)
            inner = block.mapping.mapping("zero_optimization")
            if block.kind == "deepspeed" and inner is not None:
                yield from _unknown(file, "deepspeed.zero_optimization", inner, ("zero_optimization",))


def _is_slip(key: str, near: str) -> bool:
    """Do the names differ by one or two letters, and not only by dashes?"""
    steps = difflib.SequenceMatcher(None, key, near, autojunk=False).get_opcodes()
    letters = sum(max(b - a, d - c) for kind, a, b, c, d in steps if kind != "equal")
    return letters <= 2 and key.replace("-", "_") != near


def _unknown(file: ConfigFile, kind: str, mapping: Mapping, path: tuple[str, ...]) -> Iterator[ConfigProblem]:
    known = known_keys(kind)
    unknown = [entry for entry in mapping if entry.key.text not in known and len(entry.key.text) <= _LONGEST]
    for entry in unknown[:_MOST]:  # each is compared with all names
        key = entry.key.text
        if entry.merged or len(key) < 5 or key.startswith("_"):
            continue
        near = next(iter(difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)), None)
        if near is None or near in mapping or not _is_slip(key, near):
            continue
        start = file.document.byte(entry.key.start)
        quoted = file.text[entry.key.start : entry.key.start + 1] in "\"'"
        edit = Edit(start + quoted, start + quoted + len(key.encode()), near)
        yield ConfigProblem(
            entry.key.start,
            entry.value.end
            if file.document.line(entry.value.end) == file.document.line(entry.key.start)
            else entry.key.end,
            f"`{key}` is no setting of {library_of(kind)}; the nearest is `{near}`. What it should switch is not in force.",
            ".".join((*path, key)),
            fix=Fix(Safety.UNSAFE, (edit,), f"`{near}` is meant"),
        )
