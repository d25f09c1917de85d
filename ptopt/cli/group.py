"""How the command fails: each error is one line on stderr, with exit status 2."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

_HYPHEN = "\u2011"  # at which `textwrap` does not break
_OPTION = re.compile(r"(?<![\w-])--?\w[\w-]*")


class _Formatter(click.HelpFormatter):
    """Breaks no line within an option: `--model-server` is copied in one piece."""

    def write_text(self, text: str) -> None:
        super().write_text(_joined(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(first, _joined(second)) for first, second in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


def _joined(text: str) -> str:
    return _OPTION.sub(lambda option: option[0].replace("-", _HYPHEN), text)


class _Context(click.Context):
    formatter_class = _Formatter


class Group(click.Group):
    """Errors are one line each on stderr, and exit 2; so is nothing but errors."""

    context_class = _Context

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        for each in (cmd, *(cmd.commands.values() if isinstance(cmd, click.Group) else ())):
            each.context_class = _Context
        super().add_command(cmd, name)

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """The command as a process: no cyclic garbage collection, as its memory is freed when it ends."""
        gc.disable()
        try:
            return super().__call__(*args, **extra)
        finally:
            gc.freeze()  # else the interpreter collects once more at its exit

    def main(self, *args: Any, **extra: Any) -> Any:
        standalone = extra.pop("standalone_mode", True)
        extra["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **extra)
        except click.UsageError as error:
            text = " ".join(error.format_message().split())
            where = (
                error.ctx.command_path
                if error.ctx is not None
                else self._named(args[0] if args else extra.get("args"))
            )
            click.echo(f"ptopt: error: {text.rstrip('.')}; see `{where} --help`", err=True)
            code = 2
        except click.ClickException as error:
            for line in error.format_message().splitlines():
                click.echo(f"ptopt: error: {line}", err=True)
            code = 2
        except (click.Abort, KeyboardInterrupt):  # an Abort is a RuntimeError, too
            code = 130
        except RuntimeError as error:
            from ptopt.rules import RulePackageError

            if not isinstance(error, RulePackageError):
                raise
            click.echo(f"ptopt: error: {error}", err=True)
            code = 2
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader is gone; Python flushes at exit
            code = 1
        sys.exit(code if isinstance(code, int) else 0)

    def _named(self, args: Sequence[str] | None) -> str:
        """The command that the arguments name; an option that lacks its value does not tell where it was read."""
        command: click.Command = self
        path = "ptopt"
        for arg in sys.argv[1:] if args is None else args:
            if not isinstance(command, click.Group) or arg not in command.commands:
                break
            command = command.commands[arg]
            path += f" {arg}"
        return path


@contextmanager
def user_errors() -> Iterator[None]:
    """Report what the user can fix as an error without a traceback."""
    from ptopt.baseline import BaselineError
    from ptopt.change import ChangeError
    from ptopt.config import ConfigError
    from ptopt.inputs import CheckoutError
    from ptopt.ranker.model import WeightsError
    from ptopt.report.text import visible

    try:
        yield
    except (BaselineError, CheckoutError, ChangeError, ConfigError, WeightsError) as error:
        raise click.ClickException(visible(str(error), keep="\n")) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise click.ClickException(visible(f"{error.filename or 'input'}: {error.strerror}")) from None
