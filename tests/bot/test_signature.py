from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.signature import Failure, check

BODY = b'{"zen": "Approachable is better than simple."}'
SECRETS = (b"new", b"old")


def signed(body: bytes, secret: bytes = b"new") -> bytes:
    return b"sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest().encode()


def test_githubs_own_example() -> None:
    # From GitHub's documentation on validating deliveries.
    given = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert check(b"Hello, World!", [given], [b"It's a Secret to Everybody"]) is None


@pytest.mark.parametrize("secret", SECRETS)
def test_both_secrets_while_rotating(secret: bytes) -> None:
    assert check(BODY, [signed(BODY, secret)], SECRETS) is None
    assert check(bytearray(BODY), [signed(BODY, secret)], SECRETS) is None


@pytest.mark.parametrize(
    ("headers", "failure"),
    [
        ([], Failure.MISSING),
        ([b""], Failure.MALFORMED),
        ([b"sha256="], Failure.MALFORMED),
        ([signed(BODY)[:-1]], Failure.MALFORMED),
        ([signed(BODY) + b"0"], Failure.MALFORMED),
        ([signed(BODY) + b"\n"], Failure.MALFORMED),
        ([signed(BODY).upper()], Failure.MALFORMED),
        ([signed(BODY).removeprefix(b"sha256=")], Failure.MALFORMED),
        ([b"sha1=" + hmac.new(b"new", BODY, hashlib.sha1).hexdigest().encode()], Failure.MALFORMED),
        ([signed(BODY), signed(BODY)], Failure.MALFORMED),
        ([signed(BODY, b"third")], Failure.WRONG),
        ([signed(BODY, b"")], Failure.WRONG),
        ([signed(BODY + b" ")], Failure.WRONG),
    ],
)
def test_what_is_not_believed(headers: list[bytes], failure: Failure) -> None:
    assert check(BODY, headers, SECRETS) is failure


@given(st.binary(max_size=200))
def test_no_other_header_is_believed(header: bytes) -> None:
    assert check(BODY, [header], SECRETS) is not None


@pytest.mark.parametrize("secrets", [[b""], [b"new", b""]])
def test_an_empty_secret_is_an_error(secrets: list[bytes]) -> None:
    with pytest.raises(ValueError, match="empty"):
        check(BODY, [signed(BODY, b"")], secrets)


def test_without_any_secret_nothing_is_believed() -> None:
    assert check(BODY, [signed(BODY, b"")], []) is Failure.WRONG
