"""What the routes do: decode and embed an upload, search the gallery, send its images."""

import asyncio
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from iaa.data.image_dataset import transform
from iaa.embed import PRECISIONS, embed_batches
from iaa.gallery.gallery import Gallery
from iaa.inference import Model
from iaa.retrieval.index import Index
from iaa.serve.api_errors import ApiError
from iaa.serve.background import BackgroundAnalysis
from iaa.serve.batching import Batcher, Overloaded
from iaa.serve.decode_pool import DecodePool
from iaa.serve.gallery_view import GalleryView
from iaa.serve.limits import Limits
from iaa.serve.schemas import ClassCandidate, ClassDescription, QueryClassification, SearchHit


class Service:
    """One model and one gallery.

    Uploads are decoded in processes of their own, one thread runs the network, and searching and reading
    gallery images have their own threads, so none of them waits for another.
    """

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
        self.view, self.analysis = GalleryView(gallery), BackgroundAnalysis(gallery, own)
        self._index = index
        self._transform, self.decoder = None, None
        if model.preprocessing is not None:
            self._transform = transform(False, **model.preprocessing)
            self.decoder = DecodePool(
                dict(model.preprocessing), pixels=self.limits.pixels, seconds=self.limits.decode_seconds
            )
        threads = min(4, os.cpu_count() or 1)
        self._search_pool = ThreadPoolExecutor(threads, "iaa-search")
        self._image_pool = ThreadPoolExecutor(threads, "iaa-images")
        self.batcher = Batcher(
            self._embed_batch,
            max_items=self.limits.batch,
            gather_seconds=self.limits.gather_seconds,
            max_waiting=2 * self.limits.in_flight,
        )

    @property
    def takes_images(self) -> bool:
        """Whether uploads can be embedded at all."""
        return self.decoder is not None

    def describe(self) -> str:
        """The network in a few words."""
        network, head = self.model.network, self.model.head
        name = "head on vectors" if network is None else network.name + (" and head" if head else "")
        return f"{name}, {self.model.dim} dimensions"

    def close(self) -> None:
        """Answer what waits, then end threads and processes."""
        self.analysis.stop(0)
        self.batcher.close()
        if self.decoder is not None:
            self.decoder.close()
        for pool in (self._search_pool, self._image_pool):
            pool.shutdown(wait=True, cancel_futures=True)

    async def embed(self, content: bytes, client: str) -> Tensor:
        """The embedding of an uploaded image."""
        if self.decoder is None:
            raise ApiError(422, f"this model does not embed images: {self.model.no_images}")
        pixels = await self.decoder.prepare(content, client)
        try:
            embedding: Tensor = await asyncio.wrap_future(self.batcher.submit(pixels))
        except Overloaded as error:
            raise ApiError(503, f"{error}; try again in a moment") from error
        if not embedding.isfinite().all():
            raise ApiError(
                500, "the network returns infinite or undefined numbers for this image: check its weights"
            )
        return embedding

    async def search(
        self, query: Tensor, *, top: int, label: str | None, exclude: int = -1
    ) -> tuple[list[SearchHit], int]:
        """The most similar images, and how many were searched."""
        rows = self.view.rows(label)
        index = self._index if rows is None else None
        search = functools.partial(self.gallery.search, top=top, exclude=[exclude], label=label, index=index)
        (hits,) = await self._in_thread(self._search_pool, search, query[None])
        total = len(self.gallery) if rows is None else len(rows)
        return [self.view.hit(hit.row, hit.similarity) for hit in hits], total

    async def classify(self, query: Tensor) -> QueryClassification | None:
        """The most likely classes; None until the gallery is analysed."""
        classifier = self.analysis.classifier
        if classifier is None:
            return None
        (names,) = await self._in_thread(self._search_pool, classifier.classify, query[None])
        candidates = [ClassCandidate(label=name.label, score=name.score) for name in names.candidates]
        return QueryClassification(classes=candidates, known=names.known)

    async def describe_class(self, label: str) -> ClassDescription:
        """How a class varies."""
        describe = functools.partial(self.view.describe_class, label, self.analysis)
        description: ClassDescription = await self._in_thread(self._search_pool, describe)
        return description

    async def image(self, row: int, side: int) -> tuple[bytes, str]:
        """An image of the gallery, reduced, and its media type."""
        get = functools.partial(self.view.images.get, self.view.check_row(row), side)
        content, media_type = await self._in_thread(self._image_pool, get)
        return content, media_type

    async def _in_thread(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)

    def _embed_batch(self, images: list[Tensor]) -> list[Tensor]:
        assert self._transform is not None
        assert self.model.network is not None
        rows = torch.arange(len(images))
        batch = self._transform.finish(torch.stack(images))
        precision = PRECISIONS[self.model.precision]
        z, _, _ = embed_batches(
            self.model.network, [(batch, rows, rows)], device=self.model.device, precision=precision
        )
        return list(z)
