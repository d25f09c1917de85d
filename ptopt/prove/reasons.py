"""Why a fix is not proved: the closed list, in the order in which they are looked for."""

from __future__ import annotations

import enum


class Reason(str, enum.Enum):
    """The value is what JSON holds; `text` is what people read."""

    NO_FIX = "no-fix"
    NOT_ONE_FUNCTION = "not-one-function"
    NEEDS_OBJECT = "needs-object"
    NOT_PURE = "not-pure"
    INPUT_OUTPUT = "input-output"
    OUTSIDE_NAME = "outside-name"
    DEVICE = "device"
    PARAMETERS = "parameters"
    NO_SANDBOX = "no-sandbox"
    NO_INPUT = "no-input"
    NOT_COMPARABLE = "not-comparable"
    TOO_LONG = "too-long"
    CRASHED = "crashed"
    DIFFERENT = "different"
    NOT_FASTER = "not-faster"

    @property
    def text(self) -> str:
        return _TEXTS[self]

    def __str__(self) -> str:
        return self.value


_TEXTS = {
    Reason.NO_FIX: "it has no fix",
    Reason.NOT_ONE_FUNCTION: "the fix is not inside one function",
    Reason.NEEDS_OBJECT: "the method reads its object",
    Reason.NOT_PURE: "the function may do more than compute",
    Reason.INPUT_OUTPUT: "the function does input or output",
    Reason.OUTSIDE_NAME: "the function reads a name that is neither a constant nor of torch, math or numpy",
    Reason.DEVICE: "the function names a device that is not the CPU",
    Reason.PARAMETERS: "the inputs cannot be inferred",
    Reason.NO_SANDBOX: "there is no sandbox to run it in",
    Reason.NO_INPUT: "no generated input runs",
    Reason.NOT_COMPARABLE: "its result cannot be compared",
    Reason.TOO_LONG: "it takes too long",
    Reason.CRASHED: "it ends the process that runs it, or needs too much memory",
    Reason.DIFFERENT: "the fix changes the result",
    Reason.NOT_FASTER: "the fix is not measurably faster",
}


class RefusedError(Exception):
    """A fix is not proved, for `reason`; `detail` says where or what, in words of ours."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.text}{f': {detail}' if detail else ''}")
        self.reason = reason
        self.detail = detail
