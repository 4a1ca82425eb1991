"""Models on the Hugging Face hub: ``hf:OWNER/NAME``, downloaded into its cache and uploaded as a folder."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from iaa.config import CONFIG_FILE, load_config
from iaa.errors import need
from iaa.files import read_tensors

PREFIX = "hf:"
WEIGHTS = "model.safetensors"
FILES = (WEIGHTS, CONFIG_FILE, "preprocessing.json", "metrics.json", "README.md")
"""What a published model consists of."""
LOGIN = "log in with `hf auth login`"


class Repo(NamedTuple):
    """A model on the hub, at its newest revision if none is named."""

    id: str
    revision: str | None = None

    def __str__(self) -> str:
        return PREFIX + self.id + (f"@{self.revision}" if self.revision else "")


def parse_repo(text: str) -> Repo:
    """From ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``, the prefix being optional.

    >>> parse_repo("hf:ada/birds@v1")
    Repo(id='ada/birds', revision='v1')
    """
    match = re.fullmatch(r"(?:hf:)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text)
    if match is None:
        raise ValueError(f"a model on the hub must be hf:OWNER/NAME or hf:OWNER/NAME@REVISION, got {text!r}")
    return Repo(match[1], match[2])


def download(repo: Repo) -> Path:
    """The folder with the model's files in the hub's cache, all of one revision; nothing in them is executed.

    Without a network it is the revision that was downloaded last.
    """
    api = _api(None)
    with _explained(repo, api.endpoint, "read"):
        config = Path(api.hf_hub_download(repo.id, CONFIG_FILE, revision=repo.revision))
    folder = config.parent
    try:
        load_config(config)
    except ValueError as error:
        raise ValueError(f"{repo} is not an iaa model: {error}") from error
    with _explained(repo, api.endpoint, "read"):  # by its commit, so that a push in between does no harm
        for name in FILES:
            api.hf_hub_download(repo.id, name, revision=folder.name)
    try:
        read_tensors(folder / WEIGHTS, require_checksum=True)
    except ValueError as error:
        raise ValueError(f"{repo}: {error}") from error
    return folder


def upload(folder: Path, repo: Repo, *, private: bool, token: str | None, message: str) -> str:
    """Create the repository if it is not there, commit the files of a folder, and return the commit's URL."""
    api = _api(token)
    with _explained(repo, api.endpoint, "write to"):
        api.create_repo(repo.id, private=private, exist_ok=True)
        if repo.revision is not None:
            api.create_branch(repo.id, branch=repo.revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo.id, folder_path=folder, revision=repo.revision, commit_message=message
        )
    return str(commit.commit_url)


def _api(token: str | None) -> Any:
    hub = need("huggingface_hub", extra="hub")
    endpoint = os.environ.get("HF_ENDPOINT") or None
    return hub.HfApi(endpoint=endpoint, token=token, library_name="iaa")


@contextmanager
def _explained(repo: Repo, endpoint: str, verb: str) -> Iterator[None]:
    """Turn the hub's errors, many lines of HTML and request ids, into one line."""
    errors = need("huggingface_hub.errors", extra="hub")
    try:
        yield
    except errors.GatedRepoError as error:
        url = f"{endpoint}/{repo.id}"
        raise PermissionError(f"{repo} is gated: ask for access at {url}, then {LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        reason = f"there is no such model, or you may not {verb} it: check the name, or {LOGIN}"
        raise FileNotFoundError(f"{repo}: {reason}") from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(f"hf:{repo.id} has no revision {repo.revision!r}") from error
    except errors.RemoteEntryNotFoundError as error:
        missing = next((name for name in FILES if name in str(error)), WEIGHTS)
        raise ValueError(f"{repo} is not an iaa model: it has no {missing}") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        reason = f"{endpoint} cannot be reached, and the model is not in the cache"
        offline = need("huggingface_hub.constants", extra="hub").HF_HUB_OFFLINE
        raise ConnectionError(f"{repo}: {reason}{' (HF_HUB_OFFLINE is set)' if offline else ''}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise PermissionError(f"{repo}: you may not {verb} it: {LOGIN}, with a token that may") from error
        raise ConnectionError(f"{repo}: {endpoint} answered with status {status}") from error
    except RuntimeError as error:  # an upload that broke off
        raise ConnectionError(f"{repo}: {error} {error.__cause__ or ''}".rstrip()) from error
    except Exception as error:
        if not type(error).__module__.startswith(
            "httpx"
        ):  # httpx or httpx2, by the version of the hub's client
            raise
        raise ConnectionError(f"{repo}: {endpoint} cannot be reached ({error})") from error
