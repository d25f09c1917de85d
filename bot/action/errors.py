"""How a step of a workflow fails."""

from __future__ import annotations


class ActionError(Exception):
    """The step cannot do what the workflow requests. The text says what to change in the workflow."""
