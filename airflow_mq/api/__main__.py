"""Program that prints the response schemas of the API, for `make page`."""

from __future__ import annotations

import json

from .app import create_app, response_schemas

print(json.dumps(response_schemas(create_app()), indent=1, ensure_ascii=False))
