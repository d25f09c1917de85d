"""What the service is compared with: the receiver that a careful person writes first. It keeps nothing.

python -m benchmarks.service.bare PORT SECRET [--json]
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys

import uvicorn
from fastapi import FastAPI, Request, Response


def make_app(secret: bytes, parse: bool) -> FastAPI:
    """The application; with `parse` it also reads the payload, as every receiver must."""
    app = FastAPI()

    @app.post("/webhooks/github")
    async def hook(request: Request) -> Response:
        body = await request.body()
        signed = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signed, request.headers.get("X-Hub-Signature-256", "")):
            return Response(status_code=401)
        if parse:
            json.loads(body)
        return Response(status_code=202)

    return app


if __name__ == "__main__":
    app = make_app(sys.argv[2].encode(), "--json" in sys.argv)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
