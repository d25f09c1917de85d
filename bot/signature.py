"""The signature of a delivery: HMAC-SHA256 over the raw bytes, as GitHub sends it in `X-Hub-Signature-256`."""

from __future__ import annotations

import enum
import hmac
import re
from collections.abc import Sequence

_HEADER = re.compile(rb"sha256=([0-9a-f]{64})")


class Failure(str, enum.Enum):
    """Why a delivery is not believed. For metrics and the log only: the answer is the same for all."""

    MISSING = "missing"  # also when only the SHA-1 signature is there, which is not believed
    MALFORMED = "malformed"  # not `sha256=` and 64 hexadecimal digits, or more than one
    WRONG = "wrong"


def check(body: bytes | bytearray, headers: Sequence[bytes], secrets: Sequence[bytes]) -> Failure | None:
    """None when the one header in `headers` signs `body` with one of `secrets`.

    Each secret is tried, so that the time does not tell which one it was. Raises ValueError for an empty secret:
    everybody can sign with that.
    """
    if not all(secrets):
        raise ValueError("the webhook secret is empty")
    if not headers:
        return Failure.MISSING
    match = _HEADER.fullmatch(headers[0])
    if match is None or len(headers) > 1:
        return Failure.MALFORMED
    given = match[1]
    right = False
    for secret in secrets:
        # hmac.digest is OpenSSL's one-shot function; compare_digest takes the same time wherever the texts differ.
        signed = hmac.digest(secret, body, "sha256").hex().encode()
        right |= hmac.compare_digest(signed, given)
    return None if right else Failure.WRONG
