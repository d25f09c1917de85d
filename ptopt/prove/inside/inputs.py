"""Which inputs are tried: shapes and types that the code takes, found by trying, and what is done to each of these."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ptopt.prove.inside.layout import FLOATS, WITHIN, Call, Tensor

Choice = dict[str, Any]
Plan = tuple[
    tuple[Choice, str], ...
]  # for each parameter what it is given, and the letters of its dimensions

SIZES = {"a": 5, "b": 4, "c": 3, "d": 2, "1": 1}
SHAPES = (
    "ab", "a", "abc", "b", "bc", "ba", "a1", "abcd", "", "1b", "aa", "cb", "ac", "c", "bcd", "abd", "acd", "cd", "abb",
)  # fmt: skip
OF_TENSORS = ("tensor", "array", "list", "tuple")
_MOST_SHAPES = 6000  # combinations for one assignment of types
_MOST_TYPES = 120


def assignments(parameters: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Choice, ...]]:
    """A choice for each parameter, the likeliest first. Types of tensors vary last: `twists` varies them, too."""
    choices = [[(_rank(i, c), c) for i, c in enumerate(p["choices"])] for p in parameters]
    every = itertools.islice(itertools.product(*choices), 20_000)
    ranked = sorted(every, key=lambda picked: sum(rank for rank, _ in picked))
    return iter([tuple(choice for _, choice in picked) for picked in ranked[:_MOST_TYPES]])


def _rank(position: int, choice: Choice) -> int:
    return position * 5 if choice["kind"] in OF_TENSORS else position


def plans(assignment: tuple[Choice, ...], seed: int) -> Iterator[Plan]:
    """Shapes for the tensors of an assignment: all alike first, then every combination."""
    number = sum(map(_shapeless, assignment))
    if number == 0:
        yield tuple((choice, "") for choice in assignment)
        return
    chance = random.Random(seed)  # noqa: S311 - shapes, not secrets
    if len(SHAPES) ** number <= _MOST_SHAPES:
        every = list(itertools.product(SHAPES, repeat=number))
        chance.shuffle(every)
    else:
        every = [tuple(chance.choices(SHAPES, k=number)) for _ in range(_MOST_SHAPES)]
    alike = [(shape,) * number for shape in SHAPES]
    for shapes in itertools.chain(alike, (s for s in every if len(set(s)) > 1)):
        left = iter(shapes)
        yield tuple((choice, next(left) if _shapeless(choice) else "") for choice in assignment)


def _shapeless(choice: Choice) -> bool:
    return choice["kind"] in OF_TENSORS and "shape" not in choice and "shapes" not in choice


def call_of(parameters: Sequence[Mapping[str, Any]], plan: Plan, sizes: Mapping[str, int]) -> Call:
    args: list[tuple[str, bool, Any]] = []
    for parameter, (choice, letters) in zip(parameters, plan, strict=True):
        args.append((parameter["name"], parameter["named"], _argument(choice, letters, sizes)))
    return Call(args)


def _argument(choice: Choice, letters: str, sizes: Mapping[str, int]) -> Any:
    kind = choice["kind"]
    if kind in ("tensor", "array"):
        shape = tuple(sizes.get(name, name) for name in choice.get("shape", letters))
        within, high = choice.get("within", ""), choice.get("high", 2)
        return Tensor(choice["dtype"], shape, array=kind == "array", within=within, high=high)
    if kind in ("list", "tuple"):
        shapes = choice["shapes"] if "shapes" in choice else [[sizes[letter] for letter in letters]] * 3
        items = [Tensor(choice["dtype"], tuple(shape)) for shape in shapes]
        return items if kind == "list" else tuple(items)
    return {"t": kind, "value": choice.get("value")}


def twists(call: Call) -> Iterator[Call]:
    """The call itself, and the same with other memory, values, types and gradients."""
    yield call
    numbers = range(len(call.tensors))
    floats = [i for i in numbers if call.tensors[i].dtype in FLOATS]
    whole = [i for i in numbers if call.tensors[i].dtype not in FLOATS]
    for layout in ("transposed", "strided", "expanded"):
        yield _with(call, numbers, layout=layout)
        for i in numbers if len(numbers) > 1 else ():
            yield _with(call, [i], layout=layout)
    for i in floats:
        for fill in ("nan", "inf", "-inf"):
            yield _with(call, [i], fill=fill)
    for fill in ("zeros", "ties", "large", "apart", "positive"):
        yield _with(call, floats, fill=fill)
    for fill in ("negative", "zeros", "three", "wide"):
        yield _with(call, whole, fill=fill)
    yield _with(call, floats, grad=True)
    for i in floats if len(floats) > 1 else ():
        yield _with(call, [i], grad=True)
    yield _with(call, floats, grad=True, layout="transposed")
    yield _with(call, floats, grad=True, fill="zeros")
    for dtype in ("float64", "float16", "bfloat16", "int64", "bool"):
        yield _with(call, floats, dtype=dtype)
    for i in floats if len(floats) > 1 else ():
        for dtype in ("float64", "int64", "bfloat16"):
            yield _with(call, [i], dtype=dtype)
    for i in whole:
        for dtype in ("int32", "int64", "bool", "uint8", "float32"):
            if dtype != call.tensors[i].dtype:
                yield _with(call, [i], dtype=dtype)
    for i, j in itertools.combinations(numbers, 2):
        one, other = call.tensors[i], call.tensors[j]
        if (one.dtype, one.sizes) == (other.dtype, other.sizes) and not one.array:
            shared = _with(call, [j], same_as=i)
            shared.note = "in one memory"
            yield shared


def resized() -> Iterator[dict[str, int]]:
    """Other sizes of the dimensions: empty, one, large, all the same."""
    for letter in "abcd":
        for size in (0, 1, 17):
            yield {**SIZES, letter: size}
    yield dict.fromkeys(SIZES, 0) | {"1": 1}
    yield dict.fromkeys(SIZES, 1)
    yield dict.fromkeys(SIZES, 3) | {"1": 1}


def lengths(plan: Plan) -> Iterator[Plan]:
    """The plan with lists of other lengths."""
    for i, (choice, letters) in enumerate(plan):
        if choice["kind"] in ("list", "tuple") and "shapes" not in choice:
            shape = [SIZES[letter] for letter in letters]
            grown = [[size + 1 for size in shape], shape] if shape else [[], []]
            for shapes in ([], [shape], [shape] * 7, grown):
                yield (*plan[:i], ({**choice, "shapes": shapes}, letters), *plan[i + 1 :])


def _with(call: Call, numbers: Sequence[int], **changes: Any) -> Call:
    if not numbers:
        return call
    dtype = changes.get("dtype", "")
    chosen = {i for i in numbers if not dtype or dtype in WITHIN.get(call.tensors[i].within, (dtype,))}
    count = itertools.count()

    def changed(tensor: Tensor) -> Tensor:
        return dataclasses.replace(tensor, **changes) if next(count) in chosen else tensor

    args: list[tuple[str, bool, Any]] = []
    for name, by_name, value in call.args:
        if isinstance(value, Tensor):
            args.append((name, by_name, changed(value)))
        elif isinstance(value, (list, tuple)):
            args.append((name, by_name, type(value)(changed(item) for item in value)))
        else:
            args.append((name, by_name, value))
    return Call(args, call.note)
