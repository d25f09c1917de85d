from __future__ import annotations

from collections.abc import Iterator

from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigFile, ConfigProblem, ConfigRule, Entry, Fix, Safety, Severity, shown
from ptopt.rules.configs import replace as replaced

_FLAG = "--enforce-eager"
_WHY = (
    "vLLM runs each decoding step kernel by kernel, without CUDA graphs and compilation, so that launching them on the host "
    "bounds the tokens per second."
)


class ServerWithoutGraphs(ConfigRule):
    """A vLLM server is started without CUDA graphs.

    ## What it does
    Finds `--enforce-eager` in the commands of Kubernetes manifests, Compose files and Dockerfiles that start vLLM, and
    `enforce-eager: true` in its configuration.

    ## Why it is slow
    A decoding step launches hundreds of small kernels. Replayed as a CUDA graph, they start back to back; launched one by
    one, the GPU waits for the host between them.

    ## When this is wrong
    When memory is too short for the graphs, the start must be quick, or the model cannot be captured.

    ## Fix safety
    Unsafe: graphs take memory, and the start takes longer. In commands no fix is offered.

    ## Sources
    - [vLLM: engine arguments](https://docs.vllm.ai/en/stable/configuration/engine_args/)
    """

    id = "PTO019"
    name = "server-without-graphs"
    family = "config"
    severity = Severity.HIGH
    kinds = frozenset({"vllm", "kubernetes", "compose", "dockerfile"})
    prior = 0.7
    when_wrong = "memory is too short for the graphs, or the model cannot be captured"

    VALID = (
        """
        model: some/model
        tensor-parallel-size: 2
        enforce-eager: false
        """,
        """
        FROM vllm/vllm-openai:v0.10.0
        CMD ["--model", "some/model"]
        """,
        """
        services:
          server:
            image: vllm/vllm-openai
            command: --model some/model --max-model-len 8192
        """,
    )
    INVALID = (
        Invalid("""
            model: some/model
            tensor-parallel-size: 2
            enforce-eager: true  # !
            # + enforce-eager: false
        """),
        Invalid("""
            FROM vllm/vllm-openai:v0.10.0
            CMD ["--model", "some/model", "--enforce-eager"]  # !
        """),
        Invalid("""
            services:
              server:
                image: vllm/vllm-openai
                command: --model some/model --enforce-eager  # !
        """),
    )

    def check_config(self, file: ConfigFile) -> Iterator[ConfigProblem]:
        for block in file.blocks:
            entry = block.mapping.entry("enforce-eager") if block.kind == "vllm" else None
            if entry is not None and block.mapping.scalar("enforce-eager") is True:
                yield self._setting(file, entry)
        for container in file.containers:
            word = next((word for word in container.words if word.text == _FLAG), None)
            if word is not None and container.serves and "cpu" not in container.image:
                yield ConfigProblem(word.start, word.end, f"`{_FLAG}`: {_WHY}", f"{container.name}.{_FLAG}")
        for stage in file.dockerfile.stages if file.dockerfile is not None else ():
            for instruction in stage.instructions:
                starts = instruction.name in ("CMD", "ENTRYPOINT") and _FLAG in instruction.text
                if starts and ("vllm" in instruction.text or "vllm" in stage.image):
                    yield ConfigProblem(instruction.start, instruction.end, f"`{_FLAG}`: {_WHY}", _FLAG)

    def _setting(self, file: ConfigFile, entry: Entry) -> ConfigProblem:
        fix = Fix(Safety.UNSAFE, (replaced(file, entry.value, "false"),), "there is memory for the graphs")
        return ConfigProblem(
            entry.key.start, entry.value.end, f"{shown(file, entry)}: {_WHY}", "enforce-eager", fix=fix
        )
