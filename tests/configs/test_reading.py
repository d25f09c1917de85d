import json
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ptopt.configs.reading import MAX_BYTES, read_config
from ptopt.configs.values import Document, Mapping, Refused, Scalar, plain, walk

TRAINING = """\
# wie schön 🚀
model:
  name: "größe 🚀"
  lr: 1e-5
  betas: [0.9, 0.95]
  bf16: false   # a comment
defaults: &d {workers: 0}
train:
  <<: *d
  pin: yes
"""


def read(text: str | bytes, path: str = "a.yaml") -> Document:
    data = text if isinstance(text, bytes) else text.encode()
    found = read_config(path, data)
    assert isinstance(found, Document), found
    return found


def refused(text: str | bytes, path: str = "a.yaml") -> Refused:
    data = text if isinstance(text, bytes) else text.encode()
    found = read_config(path, data)
    assert isinstance(found, Refused)
    return found


def root(text: str, path: str = "a.yaml") -> Mapping:
    found = read(text, path).root
    assert found is not None
    return found


def test_values_of_yaml_are_those_of_the_usual_loader() -> None:
    assert plain(root(TRAINING)) == yaml.safe_load(TRAINING)


def test_each_value_has_its_place() -> None:
    document = read(TRAINING)
    assert document.root is not None
    entry = document.root.entry("model", "bf16")
    assert entry is not None and isinstance(entry.value, Scalar)
    assert document.text[entry.value.start : entry.value.end] == "false"
    assert (document.line(entry.key.start), document.column(entry.key.start)) == (6, 3)
    data = document.text.encode()
    assert data[document.byte(entry.value.start) : document.byte(entry.value.end)] == b"false"
    name = document.root.get("model", "name")
    assert name is not None and document.text[name.start : name.end] == '"größe 🚀"'


def test_what_is_merged_stands_where_it_is_written() -> None:
    document = read(TRAINING)
    assert document.root is not None
    merged = document.root.entry("train", "workers")
    assert merged is not None and merged.merged and document.line(merged.key.start) == 7
    assert document.root.scalar("train", "pin") is True


def test_a_number_without_a_point_is_text_and_a_number() -> None:
    value = root("lr: 1e-5").get("lr")
    assert isinstance(value, Scalar) and value.value == "1e-5" and value.number == 1e-5


def test_a_file_of_several_documents() -> None:
    document = read("a: 1\n---\nb: 2\n")
    assert [plain(node) for node in document.roots] == [{"a": 1}, {"b": 2}] and document.root is None


def test_json_has_places_too() -> None:
    text = '{\n\t"zero": {"stage": 3,\n\t\t"\\u00e9": [true, null, -1.5e3]}}'
    document = read(text, "ds.json")
    assert document.root is not None and plain(document.root) == json.loads(text)
    stage = document.root.get("zero", "stage")
    assert stage is not None and text[stage.start : stage.end] == "3" and document.line(stage.start) == 2


def test_toml_has_the_lines_of_keys() -> None:
    document = read('[training]\nbatch = 8\n\n[training.data]\nworkers = 0\nnames = ["a"]\n', "job.toml")
    assert document.root is not None
    entry = document.root.entry("training", "data", "workers")
    assert entry is not None and document.line(entry.key.start) == 5
    assert document.text[entry.value.start : entry.value.end] == "0"
    assert plain(document.root) == {"training": {"batch": 8, "data": {"workers": 0, "names": ["a"]}}}


def test_an_alias_shares_what_it_names() -> None:
    document = root("a: &x {b: 1}\nc: *x")
    assert document.get("a") is document.get("c")


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("a: 1\nb:\n\tc: 1\n", "a.yaml", "cannot start any token"),
        ("a: 1\na: 2\n", "a.yaml", "the key a occurs twice (line 2)"),
        ('{"a": 1,\n"a": 2}', "a.json", "the key a occurs twice (line 2)"),
        (b"a: \xff\n", "a.yaml", "not UTF-8 (line 1)"),
        (b"a: \0", "a.yaml", "NUL"),
        ("a: 1\r b: 2", "a.yaml", "carriage return"),
        (BOMB, "a.yaml", "those of aliases counted"),
        ("[" * 500, "a.yaml", "levels deep"),
        ("[" * 100_000, "a.json", "nested"),
        ("- " * 500 + "x", "a.yaml", "levels deep"),
        ('{"a":' * 70 + "1" + "}" * 70, "a.json", "levels deep"),
        ("a" + ".a" * 300 + " = 1", "a.toml", "nested"),
        ("a: &x [*x]", "a.yaml", "the value it is part of"),
        ("a: *x", "a.yaml", "alias"),
        ("a: {{ .Values.x }}", "a.yaml", "template"),
        ("a: [1", "a.yaml", "not YAML"),
        ('{"a": 1,}', "a.json", "not JSON"),
        ("a = ", "a.toml", "not TOML"),
        ("a: " + "9" * MAX_BYTES, "a.yaml", "KB"),
        ("<<: 3\n", "a.yaml", "merged"),
        ("x", "a.txt", "neither"),
        ('{"a": ' + "9" * 5000 + "}", "a.json", "not JSON"),
    ],
)
def test_what_cannot_be_read_has_a_reason(text: str | bytes, path: str, reason: str) -> None:
    assert reason in str(refused(text, path))


def test_unusual_scalars_are_text() -> None:
    found = root("a: 2023-99-99\nb: 0o7\nc: !!python/object:os.system x\nd: " + "1" * 5000)
    assert {key: type(found.scalar(key)) for key in "abcd"} == dict.fromkeys("abcd", str)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=12,
    )
)
def test_any_json_is_read_as_json_reads_it(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        if "\r" not in text:
            assert plain(read(text, "x.json").roots[0]) == value


@given(st.text() | st.binary(), st.sampled_from([".yaml", ".json", ".toml"]))
def test_no_bytes_raise(content: str | bytes, suffix: str) -> None:
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    found = read_config("x" + suffix, data)
    assert isinstance(found, (Document, Refused))


def test_mutated_files_are_read_or_refused() -> None:
    chance = random.Random(7)
    parts = [
        b"\t",
        b":",
        b"{",
        b"[",
        b"&a ",
        b"*a ",
        b"\n",
        b"- ",
        b"<<: ",
        b"'",
        b'"',
        b"\xff",
        b"#",
        b"|\n",
        b"? ",
    ]
    for _ in range(1000):
        data = bytearray(TRAINING.encode())
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data))
            if chance.random() < 0.6:
                data[at:at] = chance.choice(parts)
            else:
                del data[at : at + chance.randint(1, 9)]
        found = read_config("x.yaml", bytes(data))
        if isinstance(found, Document):
            for node in found.roots:
                for _, entry in walk(node):
                    assert 0 <= entry.key.start <= entry.key.end <= len(found.text)
                    assert 1 <= found.line(entry.value.start) <= found.text.count("\n") + 1
