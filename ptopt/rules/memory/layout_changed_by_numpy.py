from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile, quote
from ptopt.rules.shared.flow import value_of


class LayoutChangedByNumpy(Rule):
    """An image's channels are moved to the front by NumPy on the way to a tensor.

    ## What it does
    Finds `np.ascontiguousarray(image.transpose(2, 0, 1))` and `image.transpose(2, 0, 1).astype(np.float32)` and `.copy()` that become
    a tensor.

    ## Why it is slow
    NumPy copies a transposed array number by number. torch copies a permuted tensor with vector instructions: for images
    several times faster, and this runs for each sample.

    ## When this is wrong
    When the array is not contiguous before either: then NumPy is no slower.

    ## Example
    ```python
    x = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
    ```

    ## Use instead
    ```python
    x = torch.from_numpy(image).permute(2, 0, 1).contiguous()
    ```

    ## Fix safety
    There is no fix: an array with negative strides (`image[..., ::-1]`) cannot become a tensor without a copy.

    ## Sources
    - [mmdetection#9533: images are formatted 3 to 4 times faster](https://github.com/open-mmlab/mmdetection/pull/9533)
    """

    id = "PTO822"
    name = "layout-changed-by-numpy"
    family = "memory"
    nodes = (ast.Call,)
    calls = frozenset({"ascontiguousarray"})
    requires = ("transpose", "moveaxis", "rollaxis")
    when_wrong = "the array has negative strides, or is not contiguous before"

    VALID = (
        """
        x = torch.from_numpy(image).permute(2, 0, 1).contiguous()
        """,
        """
        x = np.ascontiguousarray(image[:, ::-1])
        """,
        """
        x = torch.from_numpy(np.ascontiguousarray(image))
        """,
    )
    INVALID = (
        Invalid(
            """
            def __getitem__(self, i):
                image = self.read(i)
                return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))  # !
            """
        ),
        Invalid(
            """
            class Pack:
                def __call__(self, results):
                    img = np.ascontiguousarray(results["img"].transpose(2, 0, 1))  # !
                    results["img"] = to_tensor(img)
                    return results
            """
        ),
        Invalid(
            """
            def to_input(frames):
                frames = np.transpose(frames, (0, 3, 1, 2))
                return torch.as_tensor(np.ascontiguousarray(frames))  # !
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        if file.imports.qualified(node.func) != "numpy.ascontiguousarray":
            return
        moved = value_of(node.args[0], file)
        if not isinstance(moved, ast.Call) or not isinstance(moved.func, ast.Attribute):
            return
        if moved.func.attr not in ("transpose", "moveaxis", "rollaxis"):
            return
        if "::-1" in file.source(moved) or file.frequencies.of(node).often in (1, 2):
            return
        yield Problem(
            node,
            f"{quote(file, node, 60)} makes NumPy copy the transposed array number by number. Wrap the array first and let torch "
            "reorder it: `torch.from_numpy(…).permute(…).contiguous()` uses vector instructions.",
            0.45,
            subject=moved,
            cause=file.index.function_of(node),
            facts={"reversed_later": "::-1" in file.source(file.index.statement_of(node))},
        )
