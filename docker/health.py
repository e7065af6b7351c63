"""Container health check.

`health.py URL` requires an answer from the URL. `health.py COMPONENT` requires Airflow's API to report the component as
healthy.
"""

from __future__ import annotations

import json
import sys
import urllib.request

API = "http://api-server:8080/api/v2/monitor/health"


def main(target: str, api: str = API) -> int:
    url = target if "://" in target else api
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (the URL is set in compose.yaml)
        text = answer.read()
    if url == target:
        return 0
    status = json.loads(text)[target]["status"]
    print(status)
    return 0 if status == "healthy" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
