# `helm test`: the service is ready, and accepts no delivery without a signature.
import os
import sys
import urllib.error
import urllib.request

url = os.environ["URL"]
with urllib.request.urlopen(url + "/readyz", timeout=30) as answer:
    print("/readyz:", answer.read().decode())
try:
    headers = {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "00000000-0000-0000-0000-000000000000"}
    request = urllib.request.Request(
        url + "/webhooks/github", b"{}", {"Content-Type": "application/json", **headers}
    )
    urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    print("a delivery without a signature:", error.code)
    sys.exit(0 if error.code in (401, 403) else 1)
sys.exit("a delivery without a signature was accepted")
