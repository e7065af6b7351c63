"""Is it well? `health.py URL` wants an answer; `health.py COMPONENT` wants Airflow's API to say that it is healthy."""

from __future__ import annotations

import json
import sys
import urllib.request

API = "http://api-server:8080/api/v2/monitor/health"


def main(asked: str, api: str = API) -> int:
    url = asked if "://" in asked else api
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (what compose.yaml says)
        text = answer.read()
    if url == asked:
        return 0
    status = json.loads(text)[asked]["status"]
    print(status)
    return 0 if status == "healthy" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
