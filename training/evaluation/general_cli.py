"""`python -m training calibrate`: what a general model behind a server may do."""

from __future__ import annotations

import re
from pathlib import Path

import click


@click.command()
@click.option(
    "--model-server",
    "server",
    required=True,
    metavar="URL",
    help="OpenAI-compatible: vLLM, llama.cpp, a hosted API.",
)
@click.option("--model", required=True, help="The name that the server knows it by.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of a dataset: examples come from its training split (work), decisions from its validation split (calibrate).",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write [default: MODEL.json]."
)
@click.option("--judged", type=click.IntRange(1), default=300, show_default=True, help="Samples to judge.")
@click.option(
    "--advised",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Samples to advise on and to explain.",
)
@click.option(
    "--timeout", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds for one request."
)
@click.option("--at-once", type=click.IntRange(1), default=16, show_default=True, help="Requests under way.")
@click.option("--price-in", type=click.FloatRange(0), help="Of a million tokens read, to print the cost.")
@click.option("--price-out", type=click.FloatRange(0), help="Of a million tokens written.")
def calibrate(
    server: str,
    model: str,
    data: Path,
    out: Path | None,
    judged: int,
    advised: int,
    timeout: float,
    at_once: int,
    price_in: float | None,
    price_out: float | None,
) -> None:
    """Decide what a general model may do, on held-out code; write the file that `ptopt review --model FILE` takes.

    A key comes from the environment (PTOPT_MODEL_API_KEY). A model for which nothing reaches the needed precision gets a
    file, too, and changes no review.
    """
    try:
        from training.evaluation import general
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"this needs the package {error.name}: pip install '.[training]'"
        ) from None
    from ptopt.model.backends.openai import OpenAIBackend
    from ptopt.model.interface import ModelUnavailableError
    from training.progress import show_progress

    place = out or Path(re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") + ".json")
    try:
        backend = OpenAIBackend(server, model, timeout=timeout, concurrency=at_once)
        try:
            with show_progress() as progress:
                found = general.calibrate(backend, model, data, judged, advised, progress)
        finally:
            backend.close()
    except (ModelUnavailableError, FileNotFoundError) as error:
        raise click.ClickException(f"nothing was written: {error}") from None
    place.write_text(found.general.to_json(), encoding="utf-8")
    click.echo(general.summary(found, price_in, price_out))
    click.echo(f"calibration: {place}")
