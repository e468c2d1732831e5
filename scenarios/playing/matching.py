"""Which messages and which calls to the metadata service a fault of a plan is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.ledger import LedgerState
from bkclient.wire.messages import (
    AddRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    WriteLacRequest,
)
from scenarios.library.parts import is_add, is_fence, is_recovery_read, is_write_back
from scenarios.plan.faults import ANY, Messages, MetadataCalls, MetadataWay, MetadataWhat, Traffic
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Delay, Match
from simbookie.world.metadata_service import MatchCall, MetadataAction, MetadataCall, MetadataFault

__all__ = ["metadata_action", "metadata_match", "traffic_match"]


def _is_read(request: Request) -> bool:
    return isinstance(request, BatchReadRequest) or (isinstance(request, ReadRequest) and request.fence_key is None)


_IS_OF: Final[dict[Traffic, Callable[[Request], bool]]] = {
    Traffic.ADD: is_add,
    Traffic.WRITE_BACK: is_write_back,
    Traffic.FENCE: is_fence,
    Traffic.RECOVERY_READ: is_recovery_read,
    Traffic.READ: _is_read,
    Traffic.LAC: lambda request: isinstance(request, ReadLacRequest | WriteLacRequest),
    Traffic.FORCE: lambda request: isinstance(request, ForceLedgerRequest),
    Traffic.ANY: lambda _: True,
}


def traffic_match(fault: Messages) -> Match:
    """The messages that the fault is about."""
    is_of, sort = _IS_OF[fault.traffic], ResponseMessage if fault.answers else RequestMessage
    bookies, entries, client = frozenset(fault.bookies), frozenset(fault.entries), fault.client

    def matches(source: str, destination: str, message: object) -> bool:
        near, far = (destination, source) if fault.answers else (source, destination)
        if not isinstance(message, sort) or client not in {ANY, near} or not (far in bookies or ANY in bookies):
            return False
        request = message.request
        return is_of(request) and (not entries or _entry_of(request) in entries)

    return matches


def _entry_of(request: Request) -> int | None:
    return request.entry_id if isinstance(request, AddRequest | ReadRequest | BatchReadRequest) else None


_STATES: Final = {
    MetadataWhat.CHANGE: LedgerState.OPEN,
    MetadataWhat.RECOVER: LedgerState.IN_RECOVERY,
    MetadataWhat.CLOSE: LedgerState.CLOSED,
}
_OPERATIONS: Final = {
    MetadataWhat.READ: ("read_ledger",),
    MetadataWhat.CREATE: ("create_ledger",),
    MetadataWhat.DELETE: ("delete_ledger",),
    MetadataWhat.WRITE: ("write_ledger",),
    MetadataWhat.NODE: ("tree_write", "tree_create"),
    MetadataWhat.NODE_READ: ("tree_get",),
}


def metadata_match(fault: MetadataCalls) -> MatchCall:
    """The calls that the fault is about."""
    operations, state = _OPERATIONS.get(fault.what, ("write_ledger",)), _STATES.get(fault.what)

    def matches(call: MetadataCall) -> bool:
        if fault.client not in {ANY, call.host}:
            return False
        if fault.what is MetadataWhat.ANY:
            return True
        written = None if call.metadata is None else call.metadata.state
        return call.operation in operations and state in {None, written}

    return matches


def metadata_action(fault: MetadataCalls) -> MetadataAction:
    """What is done to them."""
    return Delay(fault.by_s) if fault.way is MetadataWay.DELAY else MetadataFault[fault.way.name]
