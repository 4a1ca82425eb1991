"""The API: what may be asked, what is answered, and how every refusal looks."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Query, UploadFile
from fastapi import Path as InPath
from fastapi.responses import Response

from iaa import __version__
from iaa.serve import schemas
from iaa.serve.images import SIDES
from iaa.serve.service import Service

MOST = 200
"""Images that an answer may hold."""
REFUSALS = {
    400: "The request cannot be read.",
    403: "Pages of other sites may not send requests here.",
    404: "There is no such image or class.",
    408: "The request did not arrive in time.",
    413: "The upload, or the image in it, is too large.",
    421: "The server does not answer to this name.",
    422: "Something in the request is missing or wrong.",
    503: "Too much to do: try again after Retry-After seconds.",
}
_UPLOADS = (400, 403, 404, 408, 413)
_TOP = "How many images to answer with."
_ONLY = "Search only images of this class."
Top = Annotated[int, Query(ge=1, le=MOST, description=_TOP)]
Only = Annotated[str | None, Query(max_length=300, description=_ONLY)]
FormTop = Annotated[int, Form(ge=1, le=MOST, description=_TOP)]
FormOnly = Annotated[str | None, Form(max_length=300, description=_ONLY)]
Upload = Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF.")]


def add_routes(app: FastAPI, service: Service, run: str) -> None:
    """Everything under ``/api``, as its own documentation says it."""
    limits, catalogue = service.limits, service.catalogue

    @app.post(
        "/api/search",
        responses=_refusals(*_UPLOADS),
        openapi_extra=_curl("-F image=@photo.jpg -F top=5 {origin}/api/search"),
    )
    async def search_upload(image: Upload, top: FormTop = 24, label: FormOnly = None) -> schemas.Found:
        """The most similar images of the gallery to an uploaded one, nearest first."""
        content, began = await image.read(), time.perf_counter()
        catalogue.rows(label or None)  # a class that is not there is told before anything is computed
        z = await service.embed(content)
        search = service.search(z, top=top, label=label or None)
        (hits, total), likely = await asyncio.gather(search, service.likely(z))
        return schemas.Found(results=hits, likely=likely, total=total, milliseconds=_since(began))

    @app.get(
        "/api/search",
        responses=_refusals(404),
        openapi_extra=_curl("-G -d id=0 -d top=5 {origin}/api/search"),
    )
    async def search_from(
        id: Annotated[int, Query(description="An image of the gallery, which is left out of the answer.")],
        top: Top = 24,
        label: Only = None,
    ) -> schemas.Found:
        """The most similar images of the gallery to one of its own, nearest first."""
        began, row = time.perf_counter(), catalogue.row(id)
        z = service.gallery.data.z[row].float()
        hits, total = await service.search(z, top=top, label=label or None, exclude=row)
        return schemas.Found(
            query=catalogue.shown(row), results=hits, total=total, milliseconds=_since(began)
        )

    @app.post(
        "/api/embed",
        responses=_refusals(*_UPLOADS),
        openapi_extra=_curl("-F image=@photo.jpg {origin}/api/embed"),
    )
    async def embed(image: Upload) -> schemas.Vector:
        """The embedding of an uploaded image, as the network gives it: not normalised."""
        z = await service.embed(await image.read())
        return schemas.Vector(embedding=z.tolist(), dim=len(z))

    @app.get("/api/health", responses=_refusals(), openapi_extra=_curl("{origin}/api/health"))
    async def health() -> schemas.Health:
        """Whether the server is well, what it serves, and its limits."""
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
            limits=schemas.Limits(
                upload_bytes=limits.upload_bytes, pixels=limits.pixels, top=MOST, seconds=limits.seconds
            ),
            waiting=len(service.batcher),
            batches=service.batcher.batches,
            embedded=service.batcher.items,
        )

    @app.get(
        "/api/gallery", responses=_refusals(404), openapi_extra=_curl("-G -d limit=5 {origin}/api/gallery")
    )
    async def gallery(
        limit: Annotated[int, Query(ge=1, le=MOST, description="How many.")] = 24, label: Only = None
    ) -> schemas.Listed:
        """Images to begin with: of a class, or one each of classes spread over the whole gallery."""
        return catalogue.some(label or None, limit)

    @app.get(
        "/api/classes",
        responses=_refusals(),
        openapi_extra=_curl("-G -d find=a -d limit=5 {origin}/api/classes"),
    )
    async def classes(
        find: Annotated[
            str, Query(max_length=300, description="Part of the name; case does not matter.")
        ] = "",
        limit: Annotated[int, Query(ge=1, le=1000, description="How many.")] = 30,
    ) -> schemas.Classes:
        """Classes of the gallery by name."""
        return catalogue.find(find, limit)

    @app.get(
        "/api/class", responses=_refusals(404), openapi_extra=_curl("-G -d label=NAME {origin}/api/class")
    )
    async def class_about(
        label: Annotated[str, Query(max_length=300, description="The class.")],
    ) -> schemas.ClassAbout:
        """How a class varies: its size, spread, nearest classes, and its images by how typical they are."""
        return await service.about(label)

    @app.get(
        "/api/images/{id}",
        response_class=Response,
        responses={**_refusals(404), 200: {"content": {"image/jpeg": {}, "image/png": {}}}},
        openapi_extra=_curl("{origin}/api/images/0"),
    )
    async def image(
        id: Annotated[int, InPath(description="An image of the gallery.")],
        side: Annotated[
            int, Query(ge=SIDES[0], le=SIDES[-1], description="Longest side in pixels, at most.")
        ] = 320,
        v: Annotated[
            str, Query(max_length=64, description="As answers give it; lets browsers keep it.")
        ] = "",
    ) -> Response:
        """An image of the gallery, turned upright and made small."""
        content, kind = await service.image(id, side)
        kept = "private, max-age=86400, immutable" if v == catalogue.version else "no-store"
        return Response(content, media_type=kind, headers={"cache-control": kept})


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Of an operation: those given, and those that any request may meet."""
    every = (*statuses, 421, 422, 503)
    return {status: {"model": schemas.Error, "description": REFUSALS[status]} for status in sorted(every)}


def _curl(words: str) -> dict[str, Any]:
    return {"x-example": f"curl {words}"}


def _since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 2)
