from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.data._loads import depends, is_guarded, is_kept, is_sometimes, load_of, of_weights, use_of
from ptopt.rules.ops._pure import is_deferred
from ptopt.rules.shared.places import BENCHMARK_PATH
from ptopt.rules.shared.requests import REPEATED, ROUTE, request_words
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import LOOPS, FunctionNode

_FOR_LOADING = re.compile(
    r"(^|_)(load|reload|init\w*|setup|switch|change|select|set|start|train\w*|fine_?tune\w*|download|export|convert|merge|create|make|"
    r"prepare|quanti[sz]e\w*|update|apply|build|extract|save|compare|unload)(_|$)",
    re.I,
)


class WeightsLoadedPerRequest(Rule):
    """A model or a tokenizer is read from disk again for each request.

    ## What it does
    Finds models, tokenizers and checkpoints that are loaded in the handler of a request (FastAPI, Flask, Gradio, Cog, TorchServe,
    KServe, Triton) or in a function that it calls, with nothing that keeps them for the next one.

    ## Why it is slow
    Reading weights takes seconds, building a tokenizer from its files tenths of a second, and the weights are copied to the device
    again. Each user waits for it, and requests that run at once hold a copy each.

    ## Example
    ```python
    @app.post("/label")
    def label(text: str):
        classify = pipeline("text-classification")
        return classify(text)
    ```

    ## Use instead
    ```python
    classify = pipeline("text-classification")

    @app.post("/label")
    def label(text: str):
        return classify(text)
    ```
    Where a request chooses the model, a function with `functools.lru_cache(maxsize=1)` keeps the last one.

    ## Fix safety
    No fix is offered: the object needs a place to live.

    ## Sources
    - [FastAPI: lifespan events](https://fastapi.tiangolo.com/advanced/events/)
    - [Gradio: global state](https://www.gradio.app/guides/state-in-blocks)
    """

    id = "PTO490"
    name = "weights-loaded-per-request"
    family = "data"
    severity = Severity.HIGH
    nodes = (ast.FunctionDef, ast.AsyncFunctionDef)
    triggers = (
        "from_",
        "load",
        "pipeline",
        "Transformer",
        "Encoder",
        "Model",
        "LPIPS",
        "Session",
        "Processor",
        "create",
        "easyocr",
        "ultralytics",
        "read",
    )
    libraries = (
        "torch",
        "transformers",
        "whisper",
        "diffusers",
        "sentence_transformers",
        "spacy",
        "onnxruntime",
    )
    when_wrong = "the memory is wanted for other models between two requests"

    VALID = (
        """
        from fastapi import FastAPI
        from transformers import pipeline

        app = FastAPI()
        classify = pipeline("text-classification")

        @app.post("/label")
        def label(text: str):
            return classify(text)
        """,
        """
        import functools
        from flask import Flask
        from transformers import AutoTokenizer

        app = Flask(__name__)

        @functools.lru_cache
        def tokenizer():
            return AutoTokenizer.from_pretrained("bert-base-uncased")

        @app.route("/count")
        def count():
            return str(len(tokenizer()("some text").input_ids))
        """,
        """
        import gradio as gr
        import torch

        model = None

        def answer(image):
            global model
            if model is None:
                model = torch.hub.load("facebookresearch/dinov2", "dinov2_vits14")
            return model(image)

        gr.Interface(fn=answer, inputs="image", outputs="label")
        """,
        """
        import io
        import torch
        from fastapi import FastAPI, UploadFile

        app = FastAPI()

        def read(upload):
            return torch.load(upload.file)

        @app.post("/decode")
        async def decode(file: UploadFile):
            mel = torch.load(file.file)
            other = read(file)
            data = io.BytesIO(await file.read())
            third = torch.load(data)
            return model(mel, other, third)
        """,
        """
        import gradio as gr
        from transformers import AutoModel

        def load_model(name):
            state["model"] = AutoModel.from_pretrained(name)

        with gr.Blocks():
            button.click(load_model, inputs=[name])
        """,
    )
    INVALID = (
        Invalid("""
            from fastapi import FastAPI
            from transformers import pipeline

            app = FastAPI()

            @app.post("/label")
            def label(text: str):
                classify = pipeline("text-classification")  # !
                return classify(text)
        """),
        Invalid("""
            import gradio as gr
            import torch

            def track(video):
                model = torch.hub.load("facebookresearch/co-tracker", "cotracker3_online")  # !
                return model.to("cuda")(video)

            with gr.Blocks() as demo:
                button.click(track, inputs=[video])
        """),
        Invalid("""
            from transformers import BertTokenizer
            from ts.torch_handler.base_handler import BaseHandler

            def read_tokenizer():
                return BertTokenizer.from_pretrained("bert-base-uncased")

            class Bert(BaseHandler):
                def preprocess(self, requests):
                    tokenizer = read_tokenizer()  # !
                    return tokenizer([r["body"] for r in requests])
        """),
    )

    def may_be_sure_of(self, data: bytes) -> bool:
        return any(words in data for words in REPEATED) or ROUTE.search(data) is not None

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        request = request_words(node, file)
        if not request and not _may_repeat(node, file):  # as most
            return
        if _FOR_LOADING.search(node.name) or BENCHMARK_PATH.search(file.path) or is_kept(node):
            return
        loads = [
            (call, load)
            for call in file.calls.calls_in(node)
            if (load := load_of(call, file)) is not None
            and not (is_guarded(call, node, file) or is_deferred(call, file))
            and (request or of_weights(load, file))
        ]
        if not loads:
            return
        words, loop = (request, None) if request else _repeats(node, file)
        for call, load in loads if words else ():
            chosen = depends(call, node, loop, file)
            used = use_of(call, node, file)
            doubt = used != "run" or is_sometimes(call, node, file)
            prior = (
                (TEXTBOOK if request else 0.75)
                if not chosen and not doubt
                else 0.7
                if not doubt and request
                else 0.4
            )
            through = f", through `{called_name(call)}`," if load.through is not None else ""
            remedy = (
                "Keep what was loaded by the name that is asked for, such as with `functools.lru_cache`"
                if chosen
                else "Load it once, at start-up, and keep it"
            )
            evidence = [Evidence(node.lineno, f"runs {words}")]
            if load.through is not None and load.file is file:
                evidence.append(Evidence(load.call.lineno, "loads it"))
            yield Problem(
                call,
                f"{quote(load.file, load.call, 60)} runs {words}{through} and reads its files from disk again, before anything else can "
                f"start. {remedy}.",
                prior,
                tuple(evidence),
                cause=node,
                facts={
                    "chosen": chosen,
                    "used": used == "run",
                    "freed": used == "freed",
                    "helper": bool(through),
                },
            )


def _repeats(function: FunctionNode, file: SourceFile) -> tuple[str, ast.AST | None]:
    """How often a function runs that is no handler, and the loop that shows it; "" where nothing shows that it runs often."""
    if file.context.is_item_code(function.body[0]) is not None:
        return f"for each sample (`{function.name}`)", None
    found = file.frequencies.of_function(function)
    loop = next((n for n in file.index.of_type(*LOOPS) if n.lineno == found.line), None)
    if loop is None or found.often < Often.EVALUATION or found.basis != "callers":
        return "", None
    return found.reason, loop


def _may_repeat(function: FunctionNode, file: SourceFile) -> bool:
    """Is it run by a loop of this file, or for each sample? Where it is not, no other file needs to be asked."""
    return function in file.once(_run_by_loops) or file.context.is_item_code(function.body[0]) is not None


def _run_by_loops(file: SourceFile) -> set[FunctionNode]:
    """The functions that a loop of the file calls, and those that these call."""
    calls = [
        call
        for name in file.called_names & {function.name for function in file.calls.functions}
        for call in file.calls_named(name)
        if file.index.may_be_in_loop(call) and next(file.index.loops_of(call), None) is not None
    ]
    found: set[FunctionNode] = set()
    while calls:
        called = {f for call in calls if (f := file.calls.resolve(call)) is not None} - found
        found |= called
        calls = [call for function in called for call in file.calls.calls_in(function)]
    return found
