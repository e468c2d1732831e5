"""A web service that stores events: an event is acknowledged once a quorum of bookies has it.

    pip install "bkclient[zookeeper]" fastapi uvicorn
    BK_METADATA_URI=zk://127.0.0.1:2181/ledgers uvicorn --app-dir examples event_service:app

    curl -X POST localhost:8000/events -H 'content-type: application/json' -d '{"kind": "order", "data": {"tea": 1}}'
    curl 'localhost:8000/events?limit=10'

Several of these services may not share a log: a log has one owner. Give each its own name, by EVENTS_LOG.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import bkclient
from bkclient.errors import BookKeeperError
from bkclient.log import LogExists, Logs, MessageId

LOG = os.environ.get("EVENTS_LOG", "events")


class Event(BaseModel):
    """What a client sends."""

    kind: str
    data: dict[str, Any] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client and one publisher for the life of the service."""
    async with bkclient.connect(os.environ["BK_METADATA_URI"]) as bk:
        logs = Logs(bk)
        with suppress(LogExists):
            await logs.create(LOG)
        async with logs.writer(LOG, owner="event service") as log:
            app.state.logs, app.state.log = logs, log
            yield


app = FastAPI(title="Events", lifespan=lifespan)


@app.post("/events", status_code=201)
async def add_event(event: Event, request: Request) -> dict[str, str]:
    """Store an event. Concurrent requests share entries of the ledger, so many of them cost little more than one."""
    try:
        message_id = await request.app.state.log.publish(event.model_dump_json().encode(), key=event.kind)
    except BookKeeperError as error:  # it may or may not be stored
        raise HTTPException(503, str(error)) from error
    return {"id": str(message_id)}


@app.get("/events")
async def list_events(request: Request, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """The events after the one with the id ``after``, oldest first; one shows up to 0.2 seconds after it is stored."""
    start = MessageId.parse(after) if after else MessageId.EARLIEST
    events: list[dict[str, Any]] = []
    async with request.app.state.logs.reader(LOG, start, inclusive=not after, follow=False) as messages:
        async for message in messages:
            events.append({"id": str(message.id), **json.loads(message.payload)})
            if len(events) >= limit:
                break
    return events
