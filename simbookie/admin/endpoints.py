"""The paths of a bookie's HTTP interface, as BookKeeper 4.18 has them, and which function answers each.

Every path takes GET, PUT, POST and DELETE, and its function says which of them mean something; there is no answer to another
path or method. What the functions act on is an :class:`Administered`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.metadata.base import MetadataStore
from simbookie.admin.answers import BadBody, body_object, json_answer, sentence
from simbookie.admin.http_server import HttpRequest, HttpResponse
from simbookie.admin.jobs import Jobs
from simbookie.admin.metrics import CONTENT_TYPE, BookieMetrics
from simbookie.bookie import Bookie, BookieState
from simbookie.garbage import GarbageCollector
from simbookie.storage.base import StorageError
from simbookie.storage.db.location_compaction import LocationCompaction
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journaled import JournaledStorage

__all__ = ["Administered", "Answer", "Endpoints"]

_log: Final = logging.getLogger(__name__)
_METHODS: Final = frozenset(["GET", "PUT", "POST", "DELETE"])
#: Properties that may be set and shown.
PROPERTIES_MAX: Final = 1000


@dataclass(slots=True)
class Administered:
    """What operators look at and switch: a bookie, its collector, and the cluster as its metadata store has it.

    ``properties`` are what the bookie is configured with, by BookKeeper's keys. ``wall_clock`` gives seconds since 1970.
    ``address`` is where clients find the bookie. ``expand`` checks the folders of the bookie against their cookies. ``connect``
    gives a client of the cluster, to be entered and left by who asks for it. ``announced`` waits until the metadata store has
    the bookie's mode.
    """

    bookie: Bookie
    metadata: MetadataStore
    collector: GarbageCollector
    wall_clock: Callable[[], float]
    address: Callable[[], str] = str
    properties: dict[str, str] = field(default_factory=dict)
    expand: Callable[[], Awaitable[None]] | None = None
    connect: Callable[[], AbstractAsyncContextManager[BookKeeper]] | None = None
    announced: Callable[[], Awaitable[None]] | None = None
    jobs: Jobs = field(default_factory=Jobs)
    #: What was asked for in the present life of the bookie's store.

    def location_compactions(self) -> dict[str, LocationCompaction]:
        """Compactions of the databases of locations, by their paths; none where there are none, or the bookie does not run."""
        storage = self.bookie.storage
        if self.bookie.state is not BookieState.RUNNING or not isinstance(storage, JournaledStorage):
            return {}
        if not isinstance(storage.store, DbLedgerStore):
            return {}
        parts = zip(storage.index_folders, storage.store.shards, strict=True)
        return {
            _place(folder): shard.location_compaction
            for folder, shard in parts
            if shard.location_compaction is not None
        }


Answer = Callable[[Administered, HttpRequest], Awaitable[HttpResponse]]


class Endpoints:
    """Answers requests about ``subject``: an :data:`~simbookie.admin.http_server.HttpHandler`."""

    def __init__(self, subject: Administered, answers: dict[str, Answer]) -> None:
        self._subject = subject
        self._answers = answers

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer to one request."""
        answer = self._answers.get(request.path)
        if answer is None:
            return HttpResponse(
                HTTPStatus.NOT_FOUND,
                b"<html><body><h1>Resource not found</h1></body></html>",
                "text/html; charset=utf-8",
            )
        if request.method not in _METHODS:
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed")
        try:
            return await answer(self._subject, request)
        except BadBody as error:
            return sentence(HTTPStatus.BAD_REQUEST, str(error))
        except (BookKeeperError, StorageError) as error:
            _log.warning("%s %s failed: %s", request.method, request.path, error)
            return sentence(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))


async def heartbeat(_subject: Administered, _request: HttpRequest) -> HttpResponse:
    """That the process serves."""
    return sentence(HTTPStatus.OK, "OK\n")


async def metrics(subject: Administered, request: HttpRequest) -> HttpResponse:
    """Everything that is counted, for Prometheus."""
    if request.method != "GET":
        return sentence(HTTPStatus.FORBIDDEN, f"{request.method} is forbidden. Should be GET method")
    text = BookieMetrics(subject.bookie, subject.collector).exposition()
    return HttpResponse(HTTPStatus.OK, text, CONTENT_TYPE)


async def server_config(subject: Administered, request: HttpRequest) -> HttpResponse:
    """What the bookie is configured with; what is set here is shown from then on, and has no other effect."""
    if request.method == "GET":
        return json_answer(dict(sorted(subject.properties.items())))
    if request.method != "PUT" or not request.body:
        return sentence(HTTPStatus.NOT_FOUND, "Request body not found. should contains k-v pairs")
    given = {name: _property(value) for name, value in body_object(request).items()}
    if len(subject.properties | given) > PROPERTIES_MAX:
        raise BadBody(f"a bookie has {PROPERTIES_MAX} properties at most")
    subject.properties.update(given)
    return sentence(HTTPStatus.OK, "Success set server config.")


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _place(folder: Folder) -> str:
    path = folder.file("locations")
    return str(folder.disk.root / path) if isinstance(folder.disk, DirectoryDisk) else path
