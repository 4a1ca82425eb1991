"""What the routes do: embed an upload in a batch with others, search the gallery, shrink its images."""

import asyncio
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from iaa.data.image_dataset import transform
from iaa.data.image_io import UnreadableImage
from iaa.embed import embed_batches
from iaa.gallery.gallery import Gallery
from iaa.inference import Model
from iaa.retrieval.index import Index
from iaa.serve.background import Insights
from iaa.serve.batching import Batcher, Overloaded
from iaa.serve.class_views import Catalogue
from iaa.serve.images import SIDES, prepare_upload, shrink
from iaa.serve.middleware import Refused
from iaa.serve.request_limits import Limits
from iaa.serve.schemas import Candidate, ClassAbout, Hit, Likely

KEPT = 1024
"""Images of the gallery that are kept as they were sent."""


class Service:
    """One model and one gallery; threads read images and search, one thread runs the network."""

    def __init__(
        self,
        model: Model,
        gallery: Gallery,
        *,
        own: Gallery | None = None,
        limits: Limits | None = None,
        index: Index | None = None,
    ) -> None:
        self.model, self.gallery, self.limits = model, gallery, limits or Limits()
        self.catalogue, self.insights = Catalogue(gallery), Insights(gallery, own)
        self._index = index
        self._step = None if model.preprocessing is None else transform(False, **model.preprocessing)
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "iaa-serve")
        self._shrunk = functools.lru_cache(KEPT)(self._shrink)
        self.batcher = Batcher(
            self._run,
            most=self.limits.batch,
            gather=self.limits.gather_seconds,
            room=self.limits.in_flight,
        )

    @property
    def takes_images(self) -> bool:
        """Whether uploads can be embedded at all."""
        return self._step is not None

    def describe(self) -> str:
        """The network in a few words."""
        network, head = self.model.network, self.model.head
        name = "head on vectors" if network is None else network.name + (" and head" if head else "")
        return f"{name}, {self.model.dim} numbers"

    def close(self) -> None:
        """Answer what waits and end the threads."""
        self.insights.stop(0)
        self.batcher.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def embed(self, content: bytes) -> Tensor:
        """The embedding of an uploaded image."""
        if self._step is None:
            raise Refused(422, f"this model takes no images: {self.model.no_images}")
        pixels = self.limits.pixels
        prepared = await self._aside(prepare_upload, content, self._step, pixels=pixels)
        try:
            embedding: Tensor = await asyncio.wrap_future(self.batcher.submit(prepared))
        except Overloaded as error:
            raise Refused(503, f"{error}: try again in a moment") from error
        return embedding

    async def search(
        self, query: Tensor, *, top: int, label: str | None, exclude: int = -1
    ) -> tuple[list[Hit], int]:
        """The most similar images, and how many were searched."""
        within = self.catalogue.rows(label)
        find = functools.partial(self.gallery.search, top=top, exclude=[exclude], within=within)
        (hits,) = await self._aside(find, query[None], index=self._index if within is None else None)
        total = len(self.gallery) if within is None else len(within)
        return [self.catalogue.hit(hit.row, hit.similarity) for hit in hits], total

    async def likely(self, query: Tensor) -> Likely | None:
        """Which class it may be, or none, once that is learnt."""
        if self.insights.naming is None:
            return None
        (names,) = await self._aside(self.insights.naming.classify, query[None])
        candidates = [Candidate(label=one.label, score=one.score) for one in names.candidates]
        return Likely(classes=candidates, known=names.known)

    async def about(self, label: str) -> ClassAbout:
        """How a class varies."""
        about: ClassAbout = await self._aside(self.catalogue.about, label, self.insights)
        return about

    async def image(self, row: int, side: int) -> tuple[bytes, str]:
        """An image of the gallery, no larger than asked for, in one of a few sizes."""
        side = max((one for one in SIDES if one <= side), default=SIDES[0])
        try:
            return await self._aside(self._shrunk, self.catalogue.row(row), side)  # type: ignore[no-any-return]
        except UnreadableImage as error:
            raise Refused(404, f"image {row} of the gallery cannot be read: {error.reason}") from error

    async def _aside(self, work: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """Work in a thread, so that the server answers others meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, functools.partial(work, *given, **options)
        )

    def _shrink(self, row: int, side: int) -> tuple[bytes, str]:
        found = self.gallery.image(row)
        if found is None:
            raise Refused(404, f"the file of image {row} is not here any more")
        return shrink(found, side)

    def _run(self, prepared: list[Tensor]) -> list[Tensor]:
        """A batch through the network."""
        assert self._step is not None
        assert self.model.network is not None
        rows = torch.arange(len(prepared))
        images = self._step.finish(torch.stack(prepared))
        z, _, _ = embed_batches(self.model.network, [(images, rows, rows)], device=self.model.device)
        return list(z)
