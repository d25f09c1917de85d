"""From the name of a model to an advisor: its back end, its adapter, its calibration."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from ptopt.address import install
from ptopt.model.adapter_folder import why_outdated
from ptopt.model.advisor import Advisor
from ptopt.model.backends.bounded import CHUNK, Bounded
from ptopt.model.backends.loading import AdapterFolder, is_adapter, read_adapter
from ptopt.model.calibration import Calibration, CalibrationError
from ptopt.model.general import JUDGE_TOKENS as GENERAL_TOKENS
from ptopt.model.general import is_general, read_general
from ptopt.model.interface import Backend, ModelUnavailableError
from ptopt.model.region import JUDGE_TOKENS

Engine = Literal["transformers", "vllm"]
_GENERAL_TIMEOUT = 120.0  # seconds for one answer: a large model reads a whole change; the review's own limit holds all the same
SECONDS = 20.0  # default time that a review waits for the model


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A back end that serves one review after another. `adapter` is the hash of its content, or ""."""

    backend: Backend
    calibration: Calibration
    adapter: str
    judge_tokens: int
    gate: AbstractContextManager[object] | None = None  # of a back end that serves one call at a time
    chunk: int | None = CHUNK  # prompts that it is handed at once; None: all, which it takes one by one

    def advisor(self, seconds: float = SECONDS, *, owns: bool = False) -> Advisor:
        """For one review: its clock begins with its first question. Closing it closes the back end only if it `owns` it."""
        return Advisor(
            Bounded(self.backend, seconds, owns=owns, gate=self.gate, chunk=self.chunk),
            self.calibration,
            adapter=self.adapter,
            judge_tokens=self.judge_tokens,
        )


def open_model(
    model: str, *, server: str | None = None, engine: Engine = "transformers", **settings: Any
) -> OpenModel:
    """Open `model`: an adapter folder, a base model (see `loading.resolve_base`), a name that `server` serves, or the file
    of a general model that it serves (see `general`).

    With a folder and a server, the adapter is loaded into the server, which must see the folder under the same
    path, under a name made from its content. Without a calibration beside it a model changes no review.
    engine: for models in this process. settings: of the back end.
    Raises ModelUnavailableError, also for a calibration that cannot be read or is of other prompts than ours.
    """
    if is_general(model):
        return _open_general(model, server, settings)
    folder = read_adapter(model) if is_adapter(model) else None
    calibration = _calibration(folder)
    if folder and not calibration.silent and (why := why_outdated(folder.card)):
        raise ModelUnavailableError(f"{folder.path}: {why}")  # what was measured on it is no longer valid
    return OpenModel(
        _backend(model, folder, server, engine, settings),
        calibration,
        folder.content if folder else "",
        folder.judge_tokens if folder else JUDGE_TOKENS,
        None if server else threading.Lock(),
        None if server else CHUNK,
    )


def _open_general(spec: str, server: str | None, settings: dict[str, Any]) -> OpenModel:
    found = read_general(spec)
    if server is None:
        raise ModelUnavailableError(f"{spec} is for a model behind a server: name the server")
    from ptopt.model.backends.general import GeneralBackend
    from ptopt.model.backends.openai import OpenAIBackend

    settings = {"timeout": _GENERAL_TIMEOUT} | settings
    backend = GeneralBackend(OpenAIBackend(server, found.model, **settings), found.examples)
    return OpenModel(backend, found.calibration, "", GENERAL_TOKENS, chunk=None)


def open_backend(
    model: str, *, server: str | None = None, engine: Engine = "transformers", **settings: Any
) -> Backend:
    """As `open_model`, without the calibration."""
    folder = read_adapter(model) if is_adapter(model) else None
    return _backend(model, folder, server, engine, settings)


def open_advisor(
    model: str,
    *,
    server: str | None = None,
    seconds: float = SECONDS,
    engine: Engine = "transformers",
    **settings: Any,
) -> Advisor:
    """As `open_model`, for one review; closing the advisor closes the back end."""
    return open_model(model, server=server, engine=engine, **settings).advisor(seconds, owns=True)


def _calibration(folder: AdapterFolder | None) -> Calibration:
    if folder is None or folder.calibration is None:
        return Calibration.off()
    try:
        return Calibration.from_json(folder.calibration)
    except CalibrationError as error:
        raise ModelUnavailableError(f"{folder.path / 'calibration.json'}: {error}") from None


def _backend(
    model: str, folder: AdapterFolder | None, server: str | None, engine: Engine, settings: dict[str, Any]
) -> Backend:
    if server is not None:
        from ptopt.model.backends.openai import OpenAIBackend

        backend = OpenAIBackend(server, folder.served_name if folder else model, **settings)
        if folder:
            try:
                backend.load_adapter(folder.served_name, str(folder.path))
            except ModelUnavailableError:
                backend.close()
                raise
        return backend
    where: dict[str, Any] = {"adapter": folder.path} if folder else {"base": model}
    try:
        if engine == "vllm":
            from ptopt.model.backends.vllm import VLLMBackend

            return VLLMBackend(**where, **settings)
        from ptopt.model.backends.local import TransformersBackend
    except ImportError as error:
        raise ModelUnavailableError(
            f"{error.name or 'a package'} is not installed: {install('model')}, or name a server"
        ) from None
    return TransformersBackend(**where, **settings)
