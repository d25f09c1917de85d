from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptopt.profiles import stream
from ptopt.profiles.stream import EventStream
from ptopt.profiles.trace import ProfileError
from tests.profiles.traces import DATA, event, read

VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(alphabet='{}[],"\\ a\n', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='}{",a', max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
EVENTS = st.lists(st.dictionaries(st.sampled_from(["name", "args", "ph"]), VALUES, max_size=3), max_size=12)


def all_of(data: bytes) -> tuple[list[Any], EventStream]:
    found = EventStream(io.BytesIO(data))
    return [one for part in found for one in part], found


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.sampled_from([None, 1, 3]), st.integers(1, 40), st.booleans())
def test_parts_of_any_size_give_the_events_of_the_whole(
    events: list[Any], indent: int | None, part: int, bare: bool
) -> None:
    document = (
        events if bare else {"a": {"traceEvents": 1}, "traceEvents": events, "distributedInfo": {"rank": 3}}
    )
    before = stream.PART
    stream.PART = part
    try:
        found, about = all_of(json.dumps(document, indent=indent).encode())
    finally:
        stream.PART = before
    assert found == events
    assert not about.truncated and not about.skipped
    assert bare or about.about["distributedInfo"] == {"rank": 3}


def test_fields_before_and_after_the_events_are_kept() -> None:
    text = b'{"schemaVersion": 1, "deviceProperties": [{"name": "H100"}],\n "traceEvents": [{"ph": "M"}], "distributedInfo": {"rank": 2}}'
    events, found = all_of(text)
    assert events == [{"ph": "M"}]
    assert found.about["deviceProperties"] == [{"name": "H100"}]
    assert found.about["distributedInfo"] == {"rank": 2}


@pytest.mark.parametrize("cut", [10, 60, 75])
def test_what_is_whole_of_a_file_that_ends_early_is_read(cut: int) -> None:
    whole = [event("cpu_op", "aten::add", i, 1) for i in range(100)]
    text = json.dumps({"traceEvents": whole}).encode()
    events, found = all_of(text[: len(text) * cut // 100])
    assert found.truncated
    assert events == whole[: len(events)] and abs(len(events) - cut) < 3


def test_a_broken_event_costs_only_itself() -> None:
    good = json.dumps(event("cpu_op", "aten::add", 1, 1))
    text = f'{{"traceEvents": [{good}, {{"ph": "X", "Input Dims": ]}}, {good}]}}'.encode()
    # The bracket closes too early for JSON: what stands before it is read.
    events, found = all_of(text)
    assert events[0]["name"] == "aten::add"
    text = f'{{"traceEvents": [{good}, {{"ph": nothing}}, {good}]}}'.encode()
    events, found = all_of(text)
    assert len(events) == 2 and found.skipped == 1


def test_names_that_are_not_utf8_and_numbers_that_are_none_do_not_stop_it() -> None:
    good = json.dumps(event("cpu_op", "aten::add", 1, 1)).encode()
    odd = good.replace(b"aten::add", b"\xff\xfe")
    late = good.replace(b'"ts": 1', b'"ts": NaN')
    trace = read(b'{"traceEvents": [' + b", ".join([good, odd, late, b"3", b"null", b'{"ph": "X"}']) + b"]}")
    assert trace.events == 2 and trace.skipped == 3
    assert "\ufffd\ufffd" in trace.names.texts


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"traceEvents": []}', b'{"traceEvents": 3}', b"{" * 100_000, b"[" * 100_000]
)
def test_what_is_no_trace_is_an_error(text: bytes) -> None:
    with pytest.raises(ProfileError):
        read(text)


def test_gz_is_unpacked_and_a_cut_one_read_as_far_as_it_goes() -> None:
    packed = (DATA / "data.json.gz").read_bytes()
    whole = read(packed)
    assert whole.events > 500 and not whole.cut and whole.has_stacks
    part = read(packed[: len(packed) // 2])
    assert 0 < part.events < whole.events and "ends in the middle" in part.cut
    assert whole.events == read(gzip.decompress(packed)).events
    with pytest.raises(ProfileError, match="decompressed"):
        read(b"\x1f\x8b" + b"x" * 100)


def test_an_event_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LARGEST_EVENT", 1 << 16)
    monkeypatch.setattr(stream, "PART", 1 << 12)
    with pytest.raises(ProfileError, match="larger than"):
        read(b'{"traceEvents": [{"name": "' + b"a" * (1 << 20))


def test_threads_without_end_are_refused() -> None:
    text = json.dumps({"traceEvents": [event("cpu_op", "a", i, 1, tid=i) for i in range(5000)]})
    with pytest.raises(ProfileError, match="threads"):
        read(text.encode())
