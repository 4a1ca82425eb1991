"""What the API answers, as its OpenAPI document says it."""

from pydantic import BaseModel, Field


class Error(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="One sentence.")


class Shown(BaseModel):
    """An image of the gallery."""

    id: int = Field(description="Its place in the gallery, as long as the server runs.")
    label: str = Field(description="Its class.")
    name: str = Field(description="Its path below the gallery's folder.")
    image: str | None = Field(description="Where to fetch it; null if its file is not here.")


class Hit(Shown):
    """An image that was found."""

    similarity: float = Field(description="Cosine similarity to the query, at most 1.")


class Candidate(BaseModel):
    """A class that the query may belong to."""

    label: str
    score: float = Field(description="How well it fits: a log-likelihood ratio.")


class Likely(BaseModel):
    """Which class the query shows, or none of them."""

    classes: list[Candidate] = Field(description="Likeliest first.")
    known: bool | None = Field(
        description="False: probably none of the gallery's classes. Null where no threshold could be learnt."
    )


class Found(BaseModel):
    """What is most similar, nearest first."""

    query: Shown | None = Field(default=None, description="The gallery image that asked.")
    results: list[Hit]
    likely: Likely | None = Field(
        default=None, description="Of an upload; null until the server has learnt its classes."
    )
    total: int = Field(description="Images that were searched.")
    milliseconds: float = Field(description="From the whole upload to this answer.")


class Listed(BaseModel):
    """Images to begin with."""

    results: list[Shown]
    total: int


class Vector(BaseModel):
    """An embedding; not normalised, as the network gives it."""

    embedding: list[float]
    dim: int


class ClassEntry(BaseModel):
    """A class and its size."""

    label: str
    images: int


class Classes(BaseModel):
    """Classes by name."""

    classes: list[ClassEntry]
    total: int


class NearClass(BaseModel):
    """Another class and how similar its mean is."""

    label: str
    similarity: float


class Lender(BaseModel):
    """A class that lends its variance, and its share of what is lent."""

    label: str
    share: float


class ClassAbout(BaseModel):
    """How a class varies."""

    label: str
    images: int
    spread: float | None = Field(
        default=None, description="Its total variance beside that of the average class; null for one image."
    )
    directions: float | None = Field(
        default=None, description="How many directions it varies in (effective rank); null for one image."
    )
    borrowed: float | None = Field(
        default=None, description="Share of its corrected variance that other classes lend (Eq. 16)."
    )
    lenders: list[Lender] = []
    similar: list[NearClass] = []
    examples: list[Hit] = Field(
        description="Its images from the most to the least typical, by similarity to the class's mean."
    )


class GallerySize(BaseModel):
    """What is searched."""

    images: int
    classes: int
    dim: int


class Limits(BaseModel):
    """What a request may ask for."""

    upload_bytes: int
    pixels: int
    top: int
    seconds: float


class Health(BaseModel):
    """The server is well, and what it serves."""

    status: str
    version: str
    run: str
    model: str
    takes_images: bool
    gallery: GallerySize
    limits: Limits
    waiting: int = Field(description="Images that wait for the network.")
    batches: int
    embedded: int
