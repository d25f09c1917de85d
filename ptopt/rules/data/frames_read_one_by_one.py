from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.flow import assigned
from ptopt.source.index import COMPREHENSIONS, walk

_NAME = re.compile(r"^(vr|video_?reader|decord_?vr|vreader|av_?reader)$", re.I)
_DECODES = re.compile(r"decord|VideoReader")


class FramesReadOneByOne(Rule):
    """Frames of a video are decoded one at a time.

    ## What it does
    Finds comprehensions and loops that index a video reader with one number (`[reader[i] for i in indices]`), and loops that
    seek a `cv2.VideoCapture` or an `imageio` reader to each frame.

    ## Why it is slow
    Each access seeks to the last key frame and decodes forward from it. One call for all indices (`get_batch`) decodes every
    stretch once; reading forward without a seek does too.

    ## Fix safety
    No fix: readers differ in the name of the call and in the type that it returns.

    ## Sources
    - [decord: get_batch](https://github.com/dmlc/decord)
    """

    id = "PTO336"
    name = "frames-read-one-by-one"
    family = "data"
    most_stated = 0.5
    libraries = ("torch", "decord", "cv2", "imageio", "numpy")
    requires = ("VideoReader", "VideoCapture", "decord", "get_reader", "video")
    nodes = (ast.Subscript, ast.Call)
    calls = frozenset({"set", "get_data"})
    when_wrong = "only a frame or two are read from each video"

    VALID = (
        """
        import decord
        def clip(path, indices):
            return decord.VideoReader(path).get_batch(indices)
        """,
        """
        import decord
        def first(path):
            reader = decord.VideoReader(path)
            return reader[0]
        """,
        """
        import cv2
        def frames(path):
            video = cv2.VideoCapture(path)
            while True:
                ok, frame = video.read()
                if not ok:
                    return
                yield frame
        """,
    )
    INVALID = (
        Invalid("""
            import decord
            def clip(path, indices):
                reader = decord.VideoReader(path)
                return [reader[i].asnumpy() for i in indices]  # !
        """),
        Invalid("""
            import cv2
            def clip(path, indices):
                video = cv2.VideoCapture(path)
                frames = []
                for i in indices:
                    video.set(cv2.CAP_PROP_POS_FRAMES, i)  # !
                    frames.append(video.read()[1])
                return frames
        """),
        Invalid("""
            import torch
            def decode(backend, frames, start, end, count):
                if backend == "decord":
                    index = torch.linspace(start, end, count).long()
                    return torch.stack([frames[i.item()] for i in index])  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        looped = _looped(node, file)
        if looped is None:
            return
        if isinstance(node, ast.Subscript):
            if (
                not isinstance(node.ctx, ast.Load)
                or not _is_reader(node.value, file)
                or not _is_index(node.slice, looped)
            ):
                return
            what = f"{quote(file, node)} decodes one frame at a time. Read them with one call: "
            advice = f"{quote(file, node.value)[:-1]}.get_batch(…)`."
        elif isinstance(node, ast.Call) and _seeks(node, file):
            what = f"{quote(file, node)} seeks to each frame: the decoder starts again at the key frame before it. "
            advice = "Read forward (`grab()` skips a frame without decoding it), or use a reader that takes all indices at once."
        else:
            return
        yield Problem(node, what + advice, 0.5, cause=looped)


def _looped(node: ast.AST, file: SourceFile) -> ast.AST | None:
    """The comprehension or loop that runs the node once per iteration."""
    for ancestor, _ in file.index.ancestors(node):
        if isinstance(ancestor, COMPREHENSIONS):
            return ancestor
        if isinstance(ancestor, ast.stmt):
            break
    return next((loop for loop in file.index.loops_of(node) if isinstance(loop, ast.For)), None)


def _is_reader(expr: ast.expr, file: SourceFile) -> bool:
    """Was it opened as a video reader, or is it named like one in code that mentions them?"""
    if isinstance(expr, ast.Name):
        made = assigned(expr, file)
        if isinstance(made, ast.Call) and file.source(made.func).endswith("VideoReader"):
            return True
        function = file.index.function_of(expr)
        near = function is not None and bool(_DECODES.search(file.source(function)))
        return bool(_NAME.search(expr.id)) or (near and expr.id == "frames")
    return isinstance(expr, ast.Attribute) and bool(_NAME.search(expr.attr))


def _is_index(index: ast.expr, looped: ast.AST) -> bool:
    """Does the index change with the loop, by its target?"""
    targets = (
        [looped.target]
        if isinstance(looped, ast.For)
        else [g.target for g in getattr(looped, "generators", ())]
    )
    names = {n.id for target in targets for n in walk(target) if isinstance(n, ast.Name)}
    return not isinstance(index, ast.Slice) and any(
        isinstance(n, ast.Name) and n.id in names for n in walk(index)
    )


def _seeks(call: ast.Call, file: SourceFile) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "set":
        return bool(call.args) and "POS_" in file.source(call.args[0])
    return call.func.attr == "get_data" and "imageio" in file.text
