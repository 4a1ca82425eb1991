"""The application: a search page and its documented API over one model and one gallery."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from iaa import __version__
from iaa.serve.access import Access
from iaa.serve.api_errors import add_error_handlers
from iaa.serve.middleware import Guard
from iaa.serve.routes import add_routes
from iaa.serve.service import Service

PAGE = Path(__file__).parent / "page"
DESCRIPTION = (
    "Search images by example. Every error is JSON with one sentence under error. "
    "Similarity is the cosine of two embeddings."
)


def create_app(service: Service, *, run: str, hosts: Iterable[str] | None, token: str | None = None) -> Any:
    """The ASGI application; ``hosts`` are the host names it answers to, None for any."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title=f"{run}: search",
        description=DESCRIPTION,
        version=__version__,
        docs_url=None,  # they load scripts from other servers
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    access = Access(hosts=hosts, token=token)
    add_error_handlers(app)
    _add_pages(app)
    add_routes(app, service, run, access)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    if token is not None:
        _document_token(app)
    return Guard(app, access=access, limits=service.limits)


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def search_page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/api", include_in_schema=False)
    def api_page() -> FileResponse:
        return FileResponse(PAGE / "api.html", headers={"cache-control": "no-cache"})


def _document_token(app: FastAPI) -> None:
    """Say in the OpenAPI document that a token is needed."""
    document = app.openapi()  # made once and kept by the framework
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    document.setdefault("components", {})["securitySchemes"] = schemes
    document["security"] = [{"token": []}]
