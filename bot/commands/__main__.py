"""`python -m bot.commands --docs PATH` writes the page of the slash commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from bot.commands.docs import page
from bot.commands.registry import COMMANDS

parser = argparse.ArgumentParser(prog="python -m bot.commands")
parser.add_argument("--docs", type=Path, required=True, metavar="PATH", help="the file to write")
parser.parse_args().docs.write_text(page(COMMANDS.values()), encoding="utf-8")
