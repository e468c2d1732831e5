"""The way of an append through all layers, there and back, for its twins in the compiled core: which functions are on it.

There one twin does what all functions do, so it has to know of each whether it is still the one that was written; on the way back
each calls the next by its name.
"""

from __future__ import annotations

from typing import Any, Final

from bkclient._client.core import ClientCore
from bkclient._client.home_loop import running_loop
from bkclient._client.window import ClientWindow, WriterWindow
from bkclient._client.writing.flushes import Flushes
from bkclient._client.writing.outcomes import AppendFuture
from bkclient._client.writing.shell import WriterShell
from bkclient._core import has_twins, ways_of
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.ensemble import BookieMemory
from bkclient.protocol.ensemble_change import Membership
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.transport.bulk import LedgerAdds
from bkclient.wire.entry import EntryCodec
from bkclient.wire.v2 import AddPacketEncoder
from bkclient.wire.v3_add import AddEncoder

__all__ = ["ON_THE_WAY", "WriterShell"]

_CLASSES: Final[dict[str, type[Any]]] = {
    "adds": PendingAdds,
    "core": ClientCore,
    "future": AppendFuture,
    "machine": AppendMachine,
    "members": Membership,
    "options": AppendOptions,
    "sender": LedgerAdds,
    "shared": ClientWindow,
    "sizes": QuorumSizes,
    "window": WriterWindow,
}
#: Which of them may not be passed by, should somebody have replaced one.
ON_THE_WAY: Final[tuple[tuple[type[Any], str], ...]] = (
    (WriterShell, "send_add"),
    (WriterShell, "send_adds"),
    (WriterWindow, "try_take"),
    (AppendMachine, "append"),
    (AppendMachine, "append_all"),
    (PendingAdds, "push"),
    (EntryCodec, "encode_header"),
    (LedgerAdds, "send"),
    (LedgerAdds, "send_all"),
    (AddEncoder, "encode"),
    (AddPacketEncoder, "encode"),
)

has_twins(
    "appending",
    WriterShell,
    "try_append",
    "append_all",
    knows=(
        _CLASSES,
        WriterState.OPEN,
        running_loop,
        [(owner, name, ways_of(owner, name)) for owner, name in ON_THE_WAY],
    ),
)

has_twins(
    "confirming", WriterShell, "on_adds_stored", "on_adds_stored_by", "confirm_adds", knows=(ReconnectCheck, Flushes)
)
has_twins(
    "confirming",
    AppendMachine,
    "acknowledged",
    "acknowledged_by",
    "_complete",
    bind="bind_machine",
    knows=(AppendOptions, Membership, BookieMemory, WriterState.CHANGING),
)
