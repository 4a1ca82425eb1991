"""The application: a search page and its documented API over one model and one gallery."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from iaa import __version__
from iaa.serve.middleware import Guard
from iaa.serve.routes import add_routes
from iaa.serve.service import Service

PAGE = Path(__file__).parent / "page"
DESCRIPTION = (
    "Search images by example. Every refusal is JSON with one sentence under error. "
    "Similarity is the cosine of two embeddings."
)
_log = logging.getLogger("iaa.serve")


def create_app(service: Service, *, run: str, hosts: Iterable[str] | None) -> Any:
    """The ASGI application; ``hosts`` are the names it answers to, None for any."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title=f"{run}: search",
        description=DESCRIPTION,
        version=__version__,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
        separate_input_output_schemas=False,
    )
    _errors(app)
    _pages(app)
    add_routes(app, service, run)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    limits = service.limits
    return Guard(
        app, hosts=hosts, upload=limits.upload_bytes, seconds=limits.seconds, in_flight=limits.in_flight
    )


def _pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/api", include_in_schema=False)
    def documentation() -> FileResponse:
        return FileResponse(PAGE / "api.html", headers={"cache-control": "no-cache"})


def _errors(app: FastAPI) -> None:
    """Every refusal is JSON with one sentence."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        sentence, headers = error.detail, error.headers
        if sentence == "Not Found":
            sentence = "there is nothing at this address: /api lists what there is"
        elif sentence == "Method Not Allowed":
            sentence = f"this address does not take {request.method}: /api lists what there is"
            takes = app.openapi()["paths"].get(request.url.path)  # the framework knows the first of them only
            headers = {"Allow": ", ".join(sorted(map(str.upper, takes)))} if takes else headers
        return JSONResponse({"error": sentence}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = " ".join(str(part) for part in first["loc"][1:]) or "the request"
        reason = first["msg"].lower().removeprefix("value error, ")
        if "uploadfile" in reason:
            reason = "must be a file, as in `curl -F image=@photo.jpg`"
        return JSONResponse({"error": f"{where}: {reason}"}, 422)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "the server failed at this request; its log says why"}, 500)
