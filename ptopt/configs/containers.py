"""The containers that Kubernetes manifests and Compose files start, in one form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.configs.values import Entry, Mapping, Node, Scalar, Sequence, walk

GPU = re.compile(r"(?:nvidia|amd|habana|gpu\.intel)\.(?:com|ai)/\S*")
SERVERS = re.compile(r"vllm|text-generation-inference|sglang|tritonserver|lmdeploy", re.I)
_BESIDE = re.compile(
    r"operator|router|controller|manager|exporter|sidecar|gateway|scheduler|epp|test|bench", re.I
)
_TRAINS = re.compile(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed|llamafactory-cli train|axolotl train)\b"
    r"|\bpython3?\b[^\n|;&]*\b\w*(?:train|finetune|pretrain)\w*(?:\.py\b|\b)"
)
_LONGEST_COMMAND = 4000
_QUANTITY = re.compile(r"([\d.]+)(m?)$")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, and the place of the scalar that holds it."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Container:
    """A container. `pod` is what its volumes stand in, None in a Compose file; `kind` that of the object."""

    name: str
    image: str
    mapping: Mapping
    words: tuple[Word, ...]
    kind: str = ""
    pod: Mapping | None = None

    @property
    def command(self) -> str:
        """The words as one line, as far as a person would write it: patterns that look for what it starts take quadratic time."""
        return " ".join(word.text for word in self.words)[:_LONGEST_COMMAND]

    @property
    def trains(self) -> bool:
        return _TRAINS.search(self.command) is not None

    @property
    def serves(self) -> bool:
        """Does it run a server of large models?"""
        command = re.search(
            r"\bvllm serve\b|vllm\.entrypoints|sglang\.launch_server|lmdeploy serve", self.command
        )
        image = self.image.partition(":")[0]
        return bool(command) or (
            SERVERS.search(image) is not None and _BESIDE.search(image + self.name) is None
        )

    @property
    def gpu(self) -> Entry | None:
        """What asks for a GPU."""
        for part in ("limits", "requests"):
            for entry in self.mapping.mapping("resources", part) or ():
                if GPU.fullmatch(entry.key.text):
                    return entry
        devices = self.mapping.entry("deploy", "resources", "reservations", "devices")
        if devices is not None:
            return devices
        runtime = self.mapping.entry("runtime")
        if runtime is not None and self.mapping.scalar("runtime") == "nvidia":
            return runtime
        return self.mapping.entry("gpus")

    def option(self, *names: str) -> str | None:
        """The value of `--name value` or `--name=value`."""
        texts = [word.text for word in self.words]
        for at, text in enumerate(texts):
            name, equals, value = text.partition("=")
            if name.lstrip("-").replace("_", "-") in names and name.startswith("-"):
                return value if equals else texts[at + 1] if at + 1 < len(texts) else ""
        return None

    def environment(self, name: str) -> Word | None:
        """The value that a variable of the environment is set to, where it is written."""
        for key in ("env", "environment"):
            for item in self.mapping.sequence(key):
                value = (
                    item.get("value") if isinstance(item, Mapping) and item.scalar("name") == name else None
                )
                if isinstance(value, Scalar):
                    return Word(value.text, value.start, value.end)
                if isinstance(item, Scalar) and item.text.startswith(f"{name}="):
                    return Word(item.text.partition("=")[2], item.start, item.end)
        found = self.mapping.get("environment", name)
        return Word(found.text, found.start, found.end) if isinstance(found, Scalar) else None

    def mounts(self) -> Iterator[tuple[str, str]]:
        """(path in the container, volume) of each."""
        for item in self.mapping.sequence("volumeMounts"):
            if isinstance(item, Mapping):
                yield str(item.scalar("mountPath") or ""), str(item.scalar("name") or "")
        for item in self.mapping.sequence("volumes"):
            if isinstance(item, Scalar):
                source, _, target = item.text.partition(":")
                yield target.partition(":")[0], source
            elif isinstance(item, Mapping):
                yield str(item.scalar("target") or ""), str(item.scalar("source") or "")


def containers(root: Node) -> Iterator[Container]:
    """The containers of a manifest, of whatever kind of object: wherever a list `containers` stands."""
    if not isinstance(root, Mapping):
        return
    kind = str(root.scalar("kind") or "")
    pods = [root] + [entry.value for _, entry in walk(root) if isinstance(entry.value, Mapping)]
    pods += [
        item
        for _, entry in walk(root)
        if isinstance(entry.value, Sequence)
        for item in entry.value.items
        if isinstance(item, Mapping) and "containers" in item
    ]
    seen: set[int] = set()
    for pod in pods:
        if id(pod) in seen:
            continue
        seen.add(id(pod))
        for item in pod.sequence("containers"):
            if isinstance(item, Mapping) and ("image" in item or "command" in item or "args" in item):
                yield Container(
                    str(item.scalar("name") or ""),
                    str(item.scalar("image") or ""),
                    item,
                    _words(item),
                    kind,
                    pod,
                )


def services(root: Mapping) -> Iterator[Container]:
    """The services of a Compose file."""
    for entry in root.mapping("services") or ():
        if isinstance(entry.value, Mapping):
            image = str(entry.value.scalar("image") or "")
            yield Container(entry.key.text, image, entry.value, _words(entry.value))


def cores(node: Node | None) -> float | None:
    """A quantity of CPU, as in `4` and `500m`."""
    match = _QUANTITY.match(node.text) if isinstance(node, Scalar) else None
    if match is None:
        return None
    try:
        return float(match[1]) / (1000 if match[2] else 1)
    except ValueError:
        return None


def _words(mapping: Mapping) -> tuple[Word, ...]:
    found: list[Word] = []
    for key in ("entrypoint", "command", "args"):
        value = mapping.get(key)
        for item in value.items if isinstance(value, Sequence) else (value,):
            if isinstance(item, Scalar):
                found += [Word(text, item.start, item.end) for text in _split(item.text)]
    return tuple(found)


def _split(text: str) -> list[str]:
    """A line of a shell as words; each line of a script counts."""
    if not any(c.isspace() for c in text):
        return [text]
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        return text.split()
