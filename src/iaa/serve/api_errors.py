"""Errors of the API: every one is JSON with a single sentence under ``error``."""

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

RETRY_AFTER = 1
_log = logging.getLogger("iaa.serve")


class ApiError(HTTPException):
    """A refused request: the status and the sentence that the client gets."""

    def __init__(self, status: int, message: str) -> None:
        extra = {503: {"Retry-After": str(RETRY_AFTER)}, 401: {"WWW-Authenticate": "Bearer"}}
        super().__init__(status, message, extra.get(status))


def error_body(message: str) -> bytes:
    """The JSON of an error."""
    return json.dumps({"error": message}).encode()


async def send_error(send: Any, error: HTTPException) -> None:
    """Send an error outside of the application, as plain ASGI messages."""
    body = error_body(error.detail)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of the application with JSON."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        message, headers = error.detail, error.headers
        if message == "Not Found":
            message = "there is nothing at this address; /api lists what there is"
        elif message == "Method Not Allowed":
            message = f"this address does not support {request.method}; /api lists what there is"
            methods = app.openapi()["paths"].get(request.url.path)  # the framework names only the first route
            headers = {"Allow": ", ".join(sorted(map(str.upper, methods)))} if methods else headers
        return JSONResponse({"error": message}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = " ".join(str(part) for part in first["loc"][1:]) or "the request"
        reason = first["msg"].lower().removeprefix("value error, ")
        if "uploadfile" in reason:
            reason = "must be a file, as in `curl -F image=@photo.jpg`"
        return JSONResponse({"error": f"{field}: {reason}"}, 422)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "the server failed to answer this request; see its log"}, 500)
