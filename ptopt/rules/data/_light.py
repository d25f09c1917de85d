"""Calls that only shape Python values: beside them, what surrounds them counts."""

from __future__ import annotations

import ast

from ptopt.source.calls import last_name

_LIGHT = frozenset(
    "append extend add update get pop items keys values setdefault str int float bool len list tuple dict set split strip lstrip "
    "rstrip lower upper title capitalize replace format join startswith endswith index find count isna isnull notna isinstance zip "
    "enumerate range min max abs round print sorted reversed defaultdict literal_eval loads dumps basename dirname splitext Path "
    "iterrows to_dict tolist sub match search findall compile encode decode copy any all map ord chr".split()
)


def is_light(call: ast.Call) -> bool:
    func = call.func
    name = last_name(func)
    return name in _LIGHT
