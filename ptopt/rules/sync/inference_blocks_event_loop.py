from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from ptopt.rules.base import (
    TEXTBOOK,
    Edit,
    Evidence,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
)
from ptopt.rules.code import quote
from ptopt.rules.shared.endpoints import dotted, endpoint_decorator
from ptopt.rules.sync._served import RUNS, is_generator, is_loaded, model_given, runs_loaded
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes

_SERVES = ("fastapi", "starlette", "aiohttp", "websockets", "quart", "sanic", "tornado", "chainlit")
_NETWORK = re.compile(r"(^|_)(model|net|network|pipe|pipeline)$", re.I)
_ONCE = re.compile(
    r"^(main|start\w*|on_startup|lifespan|setup|init\w*|load\w*|warm\w*|test\w*|_?prepare\w*|run_all)$|benchmark|_main$"
)


class InferenceBlocksEventLoop(Rule):
    """A coroutine of a server runs a model without giving the event loop back.

    ## What it does
    Finds models that are run directly in an `async def` endpoint, or in a plain function that it calls: not awaited, and not
    in a thread.

    ## Why it is slow
    An event loop runs one coroutine at a time. For as long as the model computes it accepts no request, reads no
    upload, sends no part of a response and answers no health check; requests wait for each other though the GPU
    could batch them or copies could overlap.

    ## Example
    ```python
    @app.post("/transcribe")
    async def transcribe(file: UploadFile):
        return model.transcribe(file.file)
    ```

    ## Use instead
    ```python
    @app.post("/transcribe")
    def transcribe(file: UploadFile):
        return model.transcribe(file.file)
    ```
    FastAPI and Starlette run a plain `def` in a thread. Where the coroutine awaits other things, await the model,
    too: `await asyncio.to_thread(model.transcribe, file.file)`.

    ## Fix safety
    Unsafe: several threads may then run the model at once; take a lock where it cannot bear that.

    ## Sources
    - [FastAPI: concurrency and async / await](https://fastapi.tiangolo.com/async/#path-operation-functions)
    """

    id = "PTO134"
    name = "inference-blocks-event-loop"
    family = "sync"
    severity = Severity.HIGH
    libraries = ("torch", "transformers", "whisper", "diffusers", "vllm")
    triggers = ("async",)
    nodes = (ast.AsyncFunctionDef,)
    when_wrong = "the server handles one request at a time, and no health check or other request has to be answered meanwhile"

    VALID = (
        """
        from fastapi import FastAPI
        from transformers import pipeline

        app = FastAPI()
        classify = pipeline("text-classification")

        @app.post("/classify")
        def label(text: str):
            return classify(text)
        """,
        """
        from fastapi import FastAPI
        from fastapi.concurrency import run_in_threadpool
        from transformers import AutoModel

        app = FastAPI()
        model = AutoModel.from_pretrained("bert-base-uncased")

        @app.post("/embed")
        async def embed(text: str):
            loop = asyncio.get_running_loop()
            hidden = await loop.run_in_executor(None, lambda: model(**tokenizer(text)))
            return await run_in_threadpool(model.generate, text)
        """,
        """
        from fastapi import FastAPI
        from vllm import AsyncLLMEngine

        app = FastAPI()
        engine = AsyncLLMEngine.from_engine_args(args)

        @app.post("/generate")
        async def generate(prompt: str):
            results = engine.generate(prompt)
            async for output in results:
                last = output
            return last
        """,
        """
        from fastapi import FastAPI
        from transformers import AutoTokenizer

        app = FastAPI()
        tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")

        @app.post("/count")
        async def count(text: str):
            return len(tokenizer.encode(text))
        """,
        """
        import asyncio
        import whisper
        from fastapi import FastAPI

        app = FastAPI()
        state = {"model": whisper.load_model("base"), "name": "base"}

        def stream(model, clips):
            for clip in clips:
                yield model.transcribe(clip)

        def count(model):
            return len(list(model.parameters()))

        @app.post("/transcribe")
        async def transcribe(file: UploadFile):
            data = await file.read()
            mel = torch.tensor(json.loads(data.decode("utf-8")))
            result = await asyncio.to_thread(whisper.decode, state["model"], mel)
            count(state["model"])
            return StreamingResponse(stream(state["model"], result)), state["name"].encode()
        """,
        """
        async def main():
            model = whisper.load_model("base")
            print(model.transcribe("a.wav"))

        asyncio.run(main())
        """,
    )
    INVALID = (
        Invalid("""
            from fastapi import FastAPI
            from transformers import pipeline

            app = FastAPI()
            classify = pipeline("text-classification")

            @app.post("/classify")
            async def label(text: str):
            # + def label(text: str):
                return classify(text)  # !
        """),
        Invalid("""
            import whisper
            from fastapi import FastAPI

            app = FastAPI()
            model = whisper.load_model("base")

            @app.post("/transcribe")
            async def transcribe(file: UploadFile):
                audio = await file.read()
                return model.transcribe(decode(audio))  # !
        """),
        Invalid("""
            from fastapi import FastAPI
            from transformers import AutoModelForCausalLM

            app = FastAPI()
            model = AutoModelForCausalLM.from_pretrained("gpt2").cuda().eval()

            def answer(prompt):
                ids = tokenizer(prompt, return_tensors="pt").to("cuda")
                return tokenizer.decode(model.generate(**ids)[0])

            @app.post("/chat")
            async def chat(request: Request):
                body = await request.json()
                return {"text": answer(body["prompt"])}  # !
        """),
        Invalid("""
            import whisper
            from fastapi import FastAPI

            app = FastAPI()
            state = {"model": whisper.load_model("base")}

            def label(network, mel):
                return network.detect_language(mel)

            @app.post("/language")
            async def language(request: Request):
                mel = torch.tensor(await request.json())
                return label(state["model"], mel)  # !

            @app.post("/text")
            async def text(request: Request):
                mel = torch.tensor(await request.json())
                return whisper.decode(state["model"], mel).text  # !

            @app.post("/one")
            async def one(request: Request):
                mel = torch.tensor(await request.json())
                return state["model"].decode(mel).text  # !

            @app.post("/file")
            async def of_file(request: Request):
                name = await request.body()
                return state["model"].transcribe(name.decode())["text"]  # !
        """),
        Invalid("""
            import torch
            from aiohttp import web

            async def handle(request):
                data = await request.post()
                with torch.no_grad():
                    logits = model(to_tensor(data["image"]).cuda())  # !
                return web.json_response(logits.argmax(1).tolist())
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.AsyncFunctionDef):
            return
        route = endpoint_decorator(node)
        if not route and (_ONCE.search(node.name) or not any(map(file.imports.imports, _SERVES))):
            return
        found = [
            (call, run) for call in file.calls.calls_in(node) if (run := _run_by(call, file)) is not None
        ]
        found = [(call, run) for call, run in found if _blocks(call, node, file)]
        if not found:
            return
        fix = _can_be_plain(node, file) if route else None

        def at(call: ast.Call, run: ast.Call) -> Problem:
            through = f", through `{called_name(call)}`," if run is not call else ""
            remedy = (
                "Make it a plain `def`, which the framework runs in a thread"
                if fix
                else "Move it into a plain function, autograd's mode with it, and await that: `await asyncio.to_thread(run, …)`"
                if file.context.grad_off(call)
                else f"Await it in a thread: `await asyncio.to_thread({file.source(call.func)}, …)`"
            )
            return Problem(
                call,
                f"The coroutine `{node.name}` runs {quote(file, run, 50)}{through} on the event loop: until the model is done, "
                f"the server reads no other request, sends nothing and answers no health check. {remedy}.",
                TEXTBOOK if route and _is_sure(run, file) else 0.75 if route else 0.6,
                (
                    Evidence(node.lineno, f"a coroutine{f', the handler of {route}' if route else ''}"),
                    *([Evidence(run.lineno, "runs the model")] if run is not call else []),
                ),
                fix,
                cause=node,
                subject=call,
                facts={
                    "route": float(bool(route)),
                    "helper": float(run is not call),
                    "runs": float(len(found)),
                },
            )

        problems = [at(*each) for each in found]
        if fix is None:  # each has to be moved
            yield from problems
        else:
            yield dataclasses.replace(problems[0], elsewhere=tuple(problems[1:]))


def _run_by(call: ast.Call, file: SourceFile) -> ast.Call | None:
    """The call of a model that `call` is, or that the plain function of this file that it calls makes."""
    if _runs_model(call, file):
        return call
    function = file.calls.resolve(call)
    return _model_run_in(function, file) if isinstance(function, ast.FunctionDef) else None


@remembered
def _model_run_in(function: FunctionNode, file: SourceFile) -> ast.Call | None:
    """The first call of a model in a function that is no generator (whose body runs later, perhaps in a thread)."""
    if is_generator(function):
        return None
    return next(
        (c for c in file.calls.calls_in(function) if _runs_model(c, file) and not _deferred(c, file)), None
    )


def _runs_model(call: ast.Call, file: SourceFile) -> bool:
    """Does it run a model that this file loads or puts in eval mode, or a network with autograd off?"""
    known = runs_loaded(call, file)
    return _is_network(call, file) if known is None else known


def _is_network(call: ast.Call, file: SourceFile) -> bool:
    """Is what is called a network, or a method of one that runs it, by its value or its name, and no function of this file?"""
    func = call.func
    if not dotted(func) or file.calls.resolve(call) is not None or file.imports.qualified(func):
        return False
    owner = func.value if isinstance(func, ast.Attribute) and RUNS.search(func.attr) else func
    return file.values.is_a(owner, "module") or bool(_NETWORK.search(last_name(owner)))


def _is_sure(call: ast.Call, file: SourceFile) -> bool:
    """Is it known to be a model, by what loads it or by autograd, which is off?"""
    func = call.func
    owner = func.value if isinstance(func, ast.Attribute) else func
    return (
        is_loaded(func, file)
        or is_loaded(owner, file)
        or model_given(call, file) is not None
        or file.context.grad_off(call)
    )


def _deferred(call: ast.Call, file: SourceFile) -> bool:
    """Does it stand in a lambda, which somebody else calls?"""
    for ancestor, _ in file.index.ancestors(call):
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, ast.Lambda):
            return True
    return False


def _blocks(call: ast.Call, function: FunctionNode, file: SourceFile) -> bool:
    """Is the call neither awaited nor handed on as a coroutine, and does it run on each call of the function?"""
    if _deferred(call, file) or file.guards.rare(call, function) is not None:
        return False
    parent = file.index.parent(call)
    if isinstance(parent, (ast.Await, ast.AsyncFor, ast.comprehension)):
        return False
    if isinstance(parent, ast.Call) and call is not parent.func:
        return called_name(parent) not in (
            "create_task",
            "ensure_future",
            "gather",
            "wait_for",
            "iterate_in_threadpool",
        )
    if isinstance(parent, ast.Assign):
        names = {t.id for t in parent.targets if isinstance(t, ast.Name)}
        return not names & _awaited(function)
    return True


@remembered
def _awaited(function: FunctionNode) -> frozenset[str]:
    """Local names that are awaited, or iterated with `async for`."""
    waits = [
        node.value if isinstance(node, ast.Await) else node.iter
        for node in own_nodes(function)
        if isinstance(node, (ast.Await, ast.AsyncFor))
    ]
    return frozenset(n.id for wait in waits for n in ast.walk(wait) if isinstance(n, ast.Name))


def _can_be_plain(function: ast.AsyncFunctionDef, file: SourceFile) -> Fix | None:
    """Take `async` away where nothing is awaited, and the framework runs plain functions in threads."""
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
    threads = file.imports.imports("fastapi") or file.imports.imports("starlette")
    nested = any(isinstance(n, ast.AsyncFunctionDef) for n in own_nodes(function))
    asynchronous = any(isinstance(n, waits) for n in own_nodes(function))
    comprehension = any(isinstance(n, ast.comprehension) and n.is_async for n in own_nodes(function))
    if not threads or nested or asynchronous or comprehension or file.calls.callers(function):
        return None
    start, _ = file.bounds(function)
    if not file.data[start:].startswith(b"async def "):
        return None
    return Fix(
        Safety.UNSAFE,
        (Edit(start, start + len(b"async "), ""),),
        f"nothing but the framework calls `{function.name}`; the model may run in several threads",
    )
