"""OpenAPI description of the API; run as a program, it prints the part that the page's types are made of."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from . import schemas


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description of the application."""
    return get_openapi(title=app.title, version=app.version, routes=app.routes)


def response_schemas(app: FastAPI) -> dict[str, Any]:
    """Return a description of the response schemas alone: it is the same under every version of FastAPI."""
    components = describe(app)["components"]["schemas"]
    ours = {name: schema for name, schema in sorted(components.items()) if hasattr(schemas, name)}
    return {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": "v1"},
        "paths": {},
        "components": {"schemas": ours},
    }


if __name__ == "__main__":
    from .app import create_app

    print(json.dumps(response_schemas(create_app()), indent=1, ensure_ascii=False))
