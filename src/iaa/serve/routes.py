"""The routes of the API: parameters, responses and documented errors."""

import asyncio
import time
from typing import Annotated, Any

import torch
from fastapi import Depends, FastAPI, File, Form, Query, Request, UploadFile
from fastapi import Path as InPath
from fastapi.responses import Response

from iaa import __version__
from iaa.serve import schemas
from iaa.serve.access import Access
from iaa.serve.api_errors import ApiError
from iaa.serve.gallery_view import SIDES
from iaa.serve.limits import client_of
from iaa.serve.service import Service

MAX_TOP = 200
"""Images in a response."""
ERRORS = {
    400: "The request cannot be read.",
    401: "The access token is missing or wrong.",
    403: "Pages of other sites may not send requests to this server.",
    404: "There is no such image or class.",
    408: "The request did not arrive in time.",
    413: "The upload, or the image in it, is too large.",
    421: "The server does not answer to this host name.",
    422: "A parameter is missing or wrong, or the image cannot be read.",
    500: "The server or its network failed.",
    503: "The server is busy: try again after Retry-After seconds.",
}
_UPLOAD_ERRORS = (400, 403, 404, 408, 413, 500)
_TOP = "Number of images in the response."
_LABEL = "Search only images of this class."
Top = Annotated[int, Query(ge=1, le=MAX_TOP, description=_TOP)]
Label = Annotated[str | None, Query(max_length=300, description=_LABEL)]
QueryTop = Annotated[
    int | None, Query(alias="top", ge=1, le=MAX_TOP, description="Instead of the form field.")
]
QueryLabel = Annotated[
    str | None, Query(alias="label", max_length=300, description="Instead of the form field.")
]
FormTop = Annotated[int | None, Form(ge=1, le=MAX_TOP, description=f"{_TOP} Default 24; also in the URL.")]
FormLabel = Annotated[str | None, Form(max_length=300, description=f"{_LABEL} Also in the URL.")]
ImageFile = Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF.")]


def add_routes(app: FastAPI, service: Service, run: str, access: Access) -> None:
    """Add everything under ``/api``."""
    limits, view = service.limits, service.view
    strict = [Depends(_refuse_unknown_parameters)]

    @app.post(
        "/api/search",
        responses=_errors(*_UPLOAD_ERRORS),
        openapi_extra=_curl("-F image=@photo.jpg -F top=5 {origin}/api/search"),
        dependencies=strict,
    )
    async def search_upload(
        request: Request,
        image: ImageFile,
        top: FormTop = None,
        label: FormLabel = None,
        query_top: QueryTop = None,
        query_label: QueryLabel = None,
    ) -> schemas.SearchResult:
        """Images of the gallery that are most similar to an uploaded image, most similar first."""
        content, began = await image.read(), time.perf_counter()
        label = label or query_label or None
        view.rows(label)  # an unknown class is refused before anything is computed
        z = await service.embed(content, client_of(request.scope))
        search = service.search(z, top=top or query_top or 24, label=label)
        (hits, total), likely = await asyncio.gather(search, service.classify(z))
        return schemas.SearchResult(results=hits, likely=likely, total=total, milliseconds=_since(began))

    @app.get(
        "/api/search",
        responses=_errors(404),
        openapi_extra=_curl("-G -d id=0 -d top=5 {origin}/api/search"),
        dependencies=strict,
    )
    async def search_from(
        id: Annotated[int, Query(description="An image of the gallery; it is not among the results.")],
        top: Top = 24,
        label: Label = None,
    ) -> schemas.SearchResult:
        """Images of the gallery that are most similar to one of them, most similar first."""
        began, row = time.perf_counter(), view.check_row(id)
        z = service.gallery.vectors(torch.tensor([row]))[0].float()
        hits, total = await service.search(z, top=top, label=label or None, exclude=row)
        return schemas.SearchResult(
            query=view.image(row), results=hits, total=total, milliseconds=_since(began)
        )

    @app.post(
        "/api/embed",
        responses=_errors(*_UPLOAD_ERRORS),
        openapi_extra=_curl("-F image=@photo.jpg {origin}/api/embed"),
        dependencies=strict,
    )
    async def embed(request: Request, image: ImageFile) -> schemas.Embedding:
        """The embedding of an uploaded image as the network returns it, not normalised."""
        z = await service.embed(await image.read(), client_of(request.scope))
        return schemas.Embedding(embedding=z.tolist(), dim=len(z))

    @app.get("/api/health", responses=_errors(), openapi_extra=_curl("{origin}/api/health"))
    async def health() -> schemas.Health:
        """State of the server, what it serves, and its limits."""
        size = schemas.GallerySize(
            images=len(service.gallery), classes=len(service.gallery.classes), dim=service.gallery.dim
        )
        return schemas.Health(
            status="ok",
            version=__version__,
            run=run,
            model=service.describe(),
            takes_images=service.takes_images,
            gallery=size,
            limits=schemas.RequestLimits(
                upload_bytes=limits.upload_bytes, pixels=limits.pixels, top=MAX_TOP, seconds=limits.seconds
            ),
            waiting=len(service.batcher),
            batches=service.batcher.batches,
            embedded=service.batcher.items,
        )

    @app.post("/api/login", include_in_schema=False)
    async def login() -> Response:
        """Exchange the token, which the middleware has checked, for a cookie."""
        cookie = {} if access.token is None else {"set-cookie": access.session_cookie()}
        return Response(status_code=204, headers=cookie)

    @app.get(
        "/api/gallery",
        responses=_errors(404),
        openapi_extra=_curl("-G -d limit=5 {origin}/api/gallery"),
        dependencies=strict,
    )
    async def gallery(
        limit: Annotated[int, Query(ge=1, le=MAX_TOP, description="Number of images.")] = 24,
        label: Label = None,
    ) -> schemas.ImageList:
        """Images to start from: of one class, or one each of classes spread over the whole gallery."""
        return view.sample(label or None, limit)

    @app.get(
        "/api/classes",
        responses=_errors(),
        openapi_extra=_curl("-G -d find=a -d limit=5 {origin}/api/classes"),
        dependencies=strict,
    )
    async def classes(
        find: Annotated[str, Query(max_length=300, description="Part of the name, in any case.")] = "",
        limit: Annotated[int, Query(ge=1, le=1000, description="Number of classes.")] = 30,
    ) -> schemas.ClassList:
        """Classes of the gallery by name."""
        return view.find_classes(find, limit)

    @app.get(
        "/api/class",
        responses=_errors(404),
        openapi_extra=_curl("-G -d label=NAME {origin}/api/class"),
        dependencies=strict,
    )
    async def describe_class(
        label: Annotated[str, Query(max_length=300, description="The class.")],
    ) -> schemas.ClassDescription:
        """How a class varies: its size, spread, similar classes, and its images by how typical they are."""
        return await service.describe_class(label)

    @app.get(
        "/api/images/{id}",
        response_class=Response,
        responses={**_errors(404), 200: {"content": {"image/jpeg": {}, "image/png": {}}}},
        openapi_extra=_curl("{origin}/api/images/0"),
        dependencies=strict,
    )
    async def image(
        id: Annotated[int, InPath(description="An image of the gallery.")],
        side: Annotated[
            int, Query(ge=SIDES[0], le=SIDES[-1], description="Longest side in pixels, at most.")
        ] = 320,
        v: Annotated[
            str, Query(max_length=64, description="Version, as in responses; allows browsers to cache it.")
        ] = "",
    ) -> Response:
        """An image of the gallery, upright and reduced."""
        content, media_type = await service.image(id, side)
        is_current = v == view.image_version(id)
        caching = "private, max-age=86400, immutable" if is_current else "no-store"
        return Response(content, media_type=media_type, headers={"cache-control": caching})


def _refuse_unknown_parameters(request: Request) -> None:
    """Parameters that no one reads are mistakes: refuse them instead of ignoring them."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            names = ", ".join(known) or "none"
            raise ApiError(422, f"{name[:100]}: there is no such query parameter here (there are: {names})")


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors of an operation: the given ones and those that any request may meet."""
    documented = sorted((*statuses, 401, 421, 422, 503))
    return {status: {"model": schemas.Error, "description": ERRORS[status]} for status in documented}


def _curl(arguments: str) -> dict[str, Any]:
    return {"x-example": f"curl {arguments}"}


def _since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 2)
