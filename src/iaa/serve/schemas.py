"""Responses of the API, as its OpenAPI document describes them."""

from pydantic import BaseModel, Field


class Error(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")


class GalleryImage(BaseModel):
    """An image of the gallery."""

    id: int = Field(description="Number of the image; valid as long as the server runs.")
    label: str = Field(description="Class of the image.")
    name: str = Field(description="Path below the gallery's folder.")
    image: str | None = Field(description="URL of the image; null if its file is missing.")


class SearchHit(GalleryImage):
    """An image of the gallery with its similarity."""

    similarity: float = Field(description="Cosine similarity to the query, at most 1.")


class ClassCandidate(BaseModel):
    """A class that the query may belong to."""

    label: str
    score: float = Field(description="How well it fits: a log-likelihood ratio.")


class QueryClassification(BaseModel):
    """The most likely classes of the query."""

    classes: list[ClassCandidate] = Field(description="Most likely first.")
    known: bool | None = Field(
        description="False: probably none of the gallery's classes. Null if there is no threshold."
    )


class SearchResult(BaseModel):
    """The most similar images, most similar first."""

    query: GalleryImage | None = Field(default=None, description="The gallery image that was the query.")
    results: list[SearchHit]
    likely: QueryClassification | None = Field(
        default=None, description="For uploads; null until the server has analysed its gallery."
    )
    total: int = Field(description="Number of images that were searched.")
    milliseconds: float = Field(description="From the end of the upload to this response.")


class ImageList(BaseModel):
    """Images of the gallery."""

    results: list[GalleryImage]
    total: int


class Embedding(BaseModel):
    """An embedding as the network returns it, not normalised."""

    embedding: list[float]
    dim: int


class ClassSize(BaseModel):
    """A class and its number of images."""

    label: str
    images: int


class ClassList(BaseModel):
    """Classes by name."""

    classes: list[ClassSize]
    total: int


class SimilarClass(BaseModel):
    """Another class, and the similarity of the two means."""

    label: str
    similarity: float


class ClassLender(BaseModel):
    """A class that lends variance, and its share of what is lent."""

    label: str
    share: float


class ClassDescription(BaseModel):
    """How a class varies."""

    label: str
    images: int
    spread: float | None = Field(
        default=None, description="Total variance relative to the average class; null for a single image."
    )
    directions: float | None = Field(
        default=None, description="Number of directions it varies in (effective rank); null for one image."
    )
    borrowed: float | None = Field(
        default=None, description="Share of its corrected variance that other classes lend (Eq. 16)."
    )
    lenders: list[ClassLender] = []
    similar: list[SimilarClass] = []
    examples: list[SearchHit] = Field(
        description="Its images from the most to the least typical, by similarity to the mean of the class."
    )


class GallerySize(BaseModel):
    """Size of the gallery."""

    images: int
    classes: int
    dim: int


class RequestLimits(BaseModel):
    """Limits of a request."""

    upload_bytes: int
    pixels: int
    top: int
    seconds: float


class Health(BaseModel):
    """State of the server. Without its access token, only ``status`` is sent."""

    status: str
    version: str
    run: str
    model: str
    takes_images: bool
    gallery: GallerySize
    limits: RequestLimits
    waiting: int = Field(description="Images that wait for the network.")
    batches: int
    embedded: int
