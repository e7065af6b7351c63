"""OpenAPI description of the API, and the part of it from which the page's types are made."""

from __future__ import annotations

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
