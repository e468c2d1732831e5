"""The defects that interoperability tests have to notice, and the few that no peer can.

Each is a mistake that an implementer of BookKeeper's protocol could have made from the sources, and many are made by both sides
of this repository at once, which only a stranger can notice. Together they cover every section of the matrix in
``docs/reference/interop.md``. An ordinary test holds the old texts to the sources and the selections to the tests, so that
neither rots.
"""

from __future__ import annotations

from typing import Final

from tests.tools.interop_defect import NEWEST, OLDEST, Defect, Selection
from tests.tools.interop_defect import one as _one
from tests.tools.interop_storage_defects import STORAGE_DEFECTS

__all__ = ["DEFECTS", "Defect", "Selection"]

#: What a Java client says when it fails, and what pytest says when nobody did.
JAVA_FAILS: Final = r"JavaError: "
NOT_RAISED: Final = r"DID NOT RAISE"


_JAVA_READS: Final = "test_java_reads_what_python_wrote"
_JAVA_TAKES_OVER: Final = "test_java_takes_over_from_python_in_mid_write"

_BYTES: Final = (
    Defect(
        "CRC32C with the polynomial of CRC32",
        "bkclient/wire/digest.py",
        "extend: Callable[[int, bytes], int] = _extend_crc32c,",
        "extend: Callable[[int, bytes], int] = lambda crc, data: zlib.crc32(data, crc),",
        _one("test_both_clients", _JAVA_READS, "v3", "crc32c-open"),
        r"BKDigestMatchException",
    ),
    Defect(
        "CRC32 with its bytes the other way round",
        "bkclient/wire/digest.py",
        '_PACK_64: Final = struct.Struct(">Q").pack',
        '_PACK_64: Final = struct.Struct("<Q").pack',
        _one("test_both_clients", _JAVA_READS, "v2", "crc32-open"),
        r"BKDigestMatchException",
    ),
    Defect(
        "HMAC of the payload without the header",
        "bkclient/wire/digest.py",
        "        mac.update(head)\n",
        "",
        _one("test_both_clients", _JAVA_READS, "v3", "hmac-password", version=OLDEST),
        r"BKDigestMatchException",
    ),
    Defect(
        "the key of HMACs derived like the master key",
        "bkclient/wire/digest.py",
        'hashlib.sha1(b"mac" + password)',
        'hashlib.sha1(b"ledger" + password)',
        _one("test_both_clients", _JAVA_READS, "v3", "hmac-password", version=OLDEST),
        r"BKDigestMatchException",
    ),
    Defect(
        "the master key derived with the password first",
        "bkclient/wire/digest.py",
        'hashlib.sha1(b"ledger" + password)',
        'hashlib.sha1(password + b"ledger")',
        _one("test_both_clients", _JAVA_TAKES_OVER, "v3"),
        r"JavaError: BK\w+ \(-",
    ),
    Defect(
        "the length in an entry's header leaves out the entry itself",
        "bkclient/wire/entry.py",
        "_ENTRY.pack(self.ledger_id, entry_id, last_add_confirmed, length)",
        "_ENTRY.pack(self.ledger_id, entry_id, last_add_confirmed, length - len(payload))",
        _one("test_both_clients", "test_java_recovers_what_an_idle_python_writer_left", "v3"),
        r"assert \(19, ",
    ),
    Defect(
        "explicit LACs whose digest covers the header twice",
        "bkclient/wire/entry.py",
        'return head + self._digest(head, b"")',
        "return head + self._digest(head, head)",
        _one("test_python_features", "test_an_explicit_lac_reaches_readers_of_both_languages", "v3"),
        r"BKDigestMatchException|DigestMismatch",
    ),
    Defect(
        "digests are computed and not compared",
        "bkclient/wire/entry.py",
        "if not hmac.compare_digest(self._digest(head, payload), body[ENTRY_HEADER_SIZE:overhead]):",
        "if self._digest(head, payload) is None:",
        _one("test_hostile", "test_a_fault_before_a_real_bookie", "v2", "flip"),
        r"a wrong payload was returned",
    ),
)

_QUORUMS: Final = (
    Defect(
        "entries striped from the next bookie on",
        "bkclient/protocol/quorum.py",
        "tuple((first + w) % size for w in range(write_quorum))",
        "tuple((first + w + 1) % size for w in range(write_quorum))",
        _one("test_both_clients", "test_java_finds_each_entry_on_the_one_bookie_that_has_it", "v3", "3-1-1"),
        r"BKNoSuchEntryException",
    ),
    Defect(
        "entries that tell a LAC which is one too high",
        "bkclient/protocol/append.py",
        "entry = adds.push(payload, adds.last_add_confirmed)",
        "entry = adds.push(payload, adds.last_add_confirmed + 1)",
        _one("test_python_client", "test_following_an_open_ledger", "v3"),
        r"assert 9 == 8",
    ),
    Defect(
        "fencing reads without their flag",
        "bkclient/wire/v3.py",
        "        message.flag = _FENCE\n",
        "",
        # a writer that has appended: one that has not looks at the metadata before it does
        _one("test_python_client", "test_opening_recovers_and_fences_a_living_writer", "v3"),
        NOT_RAISED,
    ),
    Defect(
        "recovery adds without their flag",
        "bkclient/wire/v2.py",
        "self._flags = (_RECOVERY if template.recovery else 0)",
        "self._flags = (0 if template.recovery else 0)",
        _one("test_python_client", "test_opening_recovers_and_fences_a_living_writer", "v2", version=OLDEST),
        r"LedgerRecoveryFailed",
    ),
    Defect(
        "a new fragment begins with the last confirmed entry",
        "bkclient/protocol/append.py",
        "members.begin_pass(adds.last_add_confirmed + 1, ",
        "members.begin_pass(max(0, adds.last_add_confirmed), ",
        _one("test_failures", "test_a_bookie_that_stands_still_is_replaced", "v3"),
        r"assert",
    ),
)

_FEATURES: Final = (
    Defect(
        "long polls ask for what comes after the entry that is waited for",
        "bkclient/_client/reading/polls.py",
        "LongPoll(poll.entry_id - 1, left_ms, piggyback=True)",
        "LongPoll(poll.entry_id, left_ms, piggyback=True)",
        _one("test_python_features", "test_a_long_poll_returns_with_the_entry", "v3", "one-by-one"),
        r"Timeout|assert",
    ),
    Defect(
        "long polls without the flag that asks for the entry",
        "bkclient/wire/v3.py",
        "            message.flag = _PIGGYBACK\n",
        "            pass\n",
        _one("test_python_features", "test_a_long_poll_returns_with_the_entry", "v3", "one-by-one"),
        r"TimeoutError|DigestMismatch",
    ),
    Defect(
        "batch reads with count and size the wrong way round",
        "bkclient/wire/v2.py",
        "        request.max_count,\n        request.max_size,\n",
        "        request.max_size,\n        request.max_count,\n",
        _one("test_python_features", "test_batch_reads", "v2", "unstriped"),
        r"assert",
    ),
    Defect(
        "forces that name another ledger",
        "bkclient/wire/v3.py",
        "return pb.ForceLedgerRequest(ledgerId=request.ledger_id)",
        "return pb.ForceLedgerRequest(ledgerId=request.ledger_id + 1)",
        _one("test_golden", "test_what_a_real_bookie_answers", "v3"),
        r"assert",
    ),
    Defect(
        "adds without the flag of deferred sync",
        "bkclient/wire/v3_add.py",
        'tail = b"\\x28" + varint(template.write_flags) if template.write_flags else b""',
        'tail = b""',
        _one("test_python_features", "test_deferred_sync_and_force", "v3"),
        r"assert",
        unseen_because="a bookie that syncs before it answers answers the same, only later; "
        "tests of the codecs hold the bytes",
    ),
)

_METADATA: Final = (
    Defect(
        "metadata without the length before its message",
        "bkclient/metadata/codec.py",
        "return _encode_varint(len(body)) + body",
        "return body",
        _one("test_both_clients", "test_java_shows_python_s_metadata_as_python_does", "v3"),
        r"MetadataSerializationError|JavaError",
    ),
    Defect(
        "the write quorum stored as the ack quorum",
        "bkclient/metadata/codec.py",
        "ackQuorumSize=metadata.ack_quorum_size,",
        "ackQuorumSize=metadata.write_quorum_size,",
        _one("test_both_clients", "test_java_shows_python_s_metadata_as_python_does", "v3"),
        r"assert",
    ),
    Defect(
        "closed ledgers stored without their length",
        "bkclient/metadata/codec.py",
        "        length=metadata.length,\n        lastEntryId",
        "        length=0,\n        lastEntryId",
        _one("test_both_clients", _JAVA_READS, "v3", "crc32c-open"),
        r"assert",
    ),
    Defect(
        "digest types numbered from the end",
        "bkclient/metadata/codec.py",
        "LedgerMetadataFormat.DigestType.Name(metadata.digest_type) if",
        "LedgerMetadataFormat.DigestType.Name(5 - metadata.digest_type) if",
        _one("test_both_clients", _JAVA_READS, "v3", "crc32c-open"),
        r"BKDigestMatchException",
    ),
    Defect(
        "ledgers in recovery stored as open ones",
        "bkclient/metadata/codec.py",
        "state=LedgerMetadataFormat.State.Name(metadata.state),",
        "state=LedgerMetadataFormat.State.Name(1 if metadata.state == 2 else metadata.state),",
        _one("test_python_client", "test_recovering_a_ledger_nobody_wrote_to", "v3"),
        r"LedgerRecoveryFailed",
    ),
    Defect(
        "format 1 with its last word in small letters",
        "bkclient/metadata/codec.py",
        '_CLOSED_WORD: Final = "CLOSED"',
        '_CLOSED_WORD: Final = "closed"',
        _one("test_python_features", "test_metadata_of_every_format", "v3", f"{NEWEST}-1"),
        JAVA_FAILS,
    ),
    Defect(
        "format 2 without the digest type",
        "bkclient/metadata/codec.py",
        'message.ClearField("cToken")',
        'message.ClearField("digestType")',
        _one("test_python_features", "test_metadata_of_every_format", "v3", f"{NEWEST}-2"),
        r"JavaError: ZKException|BKDigestMatchException",
    ),
    Defect(
        "custom metadata not stored",
        "bkclient/metadata/codec.py",
        "        message.customMetadata.add(key=key, value=value)\n",
        "        assert key is not value\n",
        _one("test_tools", "test_ledgermetadata_shows_a_python_ledger"),
        r"assert",
    ),
)

_NAMES: Final = (
    Defect(
        "the tree of long ids begins at 2^32",
        "bkclient/metadata/paths.py",
        "SHORT_LEDGER_ID_LIMIT: Final = 2**31 - 1",
        "SHORT_LEDGER_ID_LIMIT: Final = 2**32",
        _one("test_layouts", "test_large_ids_in_the_hierarchical_layout", "v3"),
        JAVA_FAILS,
    ),
    Defect(
        "the tree of long ids begins one id too late",
        "bkclient/metadata/paths.py",
        "ledger_id < SHORT_LEDGER_ID_LIMIT or",
        "ledger_id <= SHORT_LEDGER_ID_LIMIT or",
        _one("test_layouts", "test_large_ids_in_the_hierarchical_layout", "v3"),
        JAVA_FAILS,
    ),
    Defect(
        "directories of short ids cut after two, three and five digits",
        "bkclient/metadata/paths.py",
        "{digits[:2]}/{digits[2:6]}/L{digits[6:]}",
        "{digits[:2]}/{digits[2:5]}/L{digits[5:]}",
        _one("test_both_clients", _JAVA_READS, "v3", "crc32c-open"),
        JAVA_FAILS,
    ),
    Defect(
        "long ids in hexadecimal",
        "bkclient/metadata/paths.py",
        'digits = f"{ledger_id:019d}"',
        'digits = f"{ledger_id:019x}"',
        _one("test_layouts", "test_large_ids_in_the_hierarchical_layout", "v3"),
        JAVA_FAILS,
    ),
    Defect(
        "ids of flat layouts drawn from the counter of the hierarchical one",
        "bkclient/metadata/zookeeper/ids.py",
        'f"{root}/ID-" if manager is LedgerManager.FLAT else f"{root}/idgen/ID-"',
        'f"{root}/idgen/ID-"',
        _one("test_layouts", "test_both_clients_on_a_layout_of_java_s", "v3", "flat"),
        r"assert 'idgen' not in",
    ),
    Defect(
        "a layout that names the hierarchical manager by another class",
        "bkclient/metadata/records.py",
        '"org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"',
        '"org.apache.bookkeeper.meta.HierarchicalLedgerManager"',
        _one("test_security", "test_java_authenticates_with_simulated_bookies", "v3"),
        r"Configured layout .* does not match existing layout",
    ),
)

_SECURITY: Final = (
    Defect(
        "the host in a bookie's certificate is not looked at",
        "bkclient/security/tls.py",
        "context.check_hostname = settings.verify_hostname",
        "context.check_hostname = False",
        _one("test_security", "test_what_is_missing_is_told_to_the_application", "v3", "other-host"),
        NOT_RAISED,
    ),
    Defect(
        "TLS is configured and never started",
        "bkclient/transport/handshake.py",
        "                if security.tls is not None:\n",
        "                if security.tls is self:\n",
        _one("test_security", "test_python_speaks_tls_with_real_bookies", "v3"),
        r"assert",
    ),
    Defect(
        "requests before authentication",
        "bkclient/transport/handshake.py",
        "                if security.auth is not None:\n",
        "                if security.auth is self:\n",
        _one("test_security", "test_python_authenticates_with_real_bookies", "v2"),
        r"UnauthorizedAccess",
    ),
    Defect(
        "simulated bookies that demand TLS and serve in clear",
        "simbookie/security.py",
        "elif self._security.requires_tls and not self.has_tls:",
        "elif self._security.requires_tls and self.has_tls:",
        _one("test_security", "test_java_fails_where_it_should", "v3", "tls-demanded"),
        NOT_RAISED,
    ),
    Defect(
        "simulated bookies that take any proof of the secret",
        "simbookie/security.py",
        "if not hmac.compare_digest(payload, proof_of_client(self._secret, self._client_nonce, self._nonce)):",
        "if not payload:",
        _one("test_security", "test_java_fails_where_it_should", "v3", "wrong-secret"),
        NOT_RAISED,
        unseen_because="the proof is mutual, and the bookie has to give its own first: the client with another secret goes "
        "away before it has to prove anything; tests of the simulated bookies hold it",
    ),
)

_BOOKIES: Final = (
    Defect(
        "a fenced ledger takes adds",
        "simbookie/add_refusals.py",
        "if handle.fenced and not request.recovery:",
        "if handle.fenced and request.recovery is None:",
        _one("test_java_client", "test_a_ledger_nobody_wrote_to", "v3"),
        NOT_RAISED,
    ),
    Defect(
        "master keys are not compared",
        "simbookie/ledgers.py",
        "return handle if handle.master_key == master_key else Status.UNAUTHORIZED",
        "return handle",
        _one("test_java_client", "test_a_wrong_password_fences_nobody", "v3"),
        NOT_RAISED,
    ),
    Defect(
        "a bookie without the ledger denies the entry instead",
        "simbookie/reads.py",
        "return self._table.find(request.ledger_id) or Status.NO_LEDGER",
        "return self._table.find(request.ledger_id) or Status.NO_ENTRY",
        _one("test_java_client", "test_what_is_not_there_is_denied_by_its_right_name", "v3"),
        r"assert",
    ),
    Defect(
        "LAC reads answered without the explicit LAC",
        "simbookie/reads.py",
        "respond(ReadLacResponse(status, request.ledger_id, lac_body, body))",
        "respond(ReadLacResponse(status, request.ledger_id, None, body))",
        _one("test_java_client", "test_an_explicit_lac_reaches_a_reader", "v3"),
        r"TimeoutError",
    ),
    Defect(
        "long polls answered at once",
        "simbookie/long_poll.py",
        "if poll.timeout_ms is None or handle.lac > poll.previous_lac:",
        "if True:",
        _one("test_java_client", "test_following_with_long_polls", "v3"),
        r"assert",
    ),
    Defect(
        "lists of entries with a header of 32 bytes",
        "bkclient/wire/availability.py",
        "_HEADER_SIZE: Final = 64",
        "_HEADER_SIZE: Final = 32",
        _one("test_java_client", "test_java_asks_what_a_bookie_has", "v3"),
        r"JavaError|assert",
    ),
    Defect(
        "bookie info with total and free space the wrong way round",
        "simbookie/bookie.py",
        "                capacity.total if request.requested & _INFO_TOTAL else None,\n"
        "                capacity.free if request.requested & _INFO_FREE else None,\n",
        "                capacity.free if request.requested & _INFO_TOTAL else None,\n"
        "                capacity.total if request.requested & _INFO_FREE else None,\n",
        _one("test_java_client", "test_java_asks_what_a_bookie_has", "v3"),
        r"assert",
    ),
    Defect(
        "answers to adds of version 2 with the next entry's id",
        "bkclient/wire/v2.py",
        "content = _RESPONSE.pack(*_head(version, _ADD), number, response.ledger_id, response.entry_id)",
        "content = _RESPONSE.pack(*_head(version, _ADD), number, response.ledger_id, response.entry_id + 1)",
        _one("test_java_client", "test_what_java_appended_java_reads", "v2", "CRC32C-open"),
        JAVA_FAILS,
    ),
    Defect(
        "answers with another transaction id than their requests",
        "bkclient/wire/v3.py",
        "header = header_field(response.operation, received.txn_id)",
        "header = header_field(response.operation, received.txn_id + 1)",
        _one("test_java_client", "test_a_ledger_nobody_wrote_to", "v3"),
        JAVA_FAILS,
    ),
)

_REPAIR: Final = (
    Defect(
        "marks that name their bookies in one line",
        "bkclient/repair/underreplication/formats.py",
        "UnderreplicatedLedgerFormat(replica=missing)",
        'UnderreplicatedLedgerFormat(replica=[",".join(missing)])',
        _one("test_repair", "test_java_sees_what_we_keep_about_repairs"),
        r"assert",
    ),
    Defect(
        "locks named with a zero too many",
        "bkclient/repair/underreplication/marks.py",
        'return f"{_LOCKS}/urL{',
        'return f"{_LOCKS}/urL0{',
        _one("test_repair", "test_java_sees_what_we_keep_about_repairs"),
        r"assert|JavaError",
    ),
    Defect(
        "locks that outlive their holder",
        "bkclient/repair/underreplication/marks.py",
        "encode_holder(self._name), is_ephemeral=True)",
        "encode_holder(self._name), is_ephemeral=False)",
        _one("test_repair", "test_java_sees_what_we_keep_about_repairs"),
        r"assert",
    ),
    Defect(
        "the last entry of a ledger is not copied",
        "bkclient/repair/fragments.py",
        "end = max(least_lac(metadata), -1 if metadata.is_closed else last_add_confirmed)",
        "end = max(least_lac(metadata), -1 if metadata.is_closed else last_add_confirmed) - 1",
        _one("test_repair", "test_our_recovery_moves_java_s_ledgers_away_from_a_killed_bookie", "v3"),
        r"assert",
    ),
    Defect(
        "candidates for auditor numbered under another name",
        "bkclient/repair/underreplication/election.py",
        '_DIRECTORY, "V_", encode_vote',
        '_DIRECTORY, "vote-", encode_vote',
        _one("test_repair", "test_both_auto_recoveries_work_on_one_cluster", "java-audits"),
        r"TimeoutError",
    ),
    Defect(
        "cookies without the line that says their version",
        "bkclient/metadata/records.py",
        'return f"{_COOKIE_VERSION}\\n{text_format',
        'return f"{text_format',
        _one("test_repair", "test_java_s_auto_recovery_repairs_ledgers_of_simulated_bookies"),
        r"cannot parse cookie",
    ),
)

_ADMINISTRATION: Final = (
    Defect(
        "passwords in files keep their line end",
        "bkclient/cli/access.py",
        'return file.read_bytes().removesuffix(b"\\n").removesuffix(b"\\r")',
        "return file.read_bytes()",
        _one("test_our_tools", "test_java_reads_what_was_piped_in", "v3"),
        r"BKUnauthorizedAccessException",
    ),
    Defect(
        "the last run of the entries that a bookie lists is overlooked",
        "bkclient/wire/availability.py",
        "_GROUP.iter_unpack(data[_HEADER_SIZE:])",
        "_GROUP.iter_unpack(data[_HEADER_SIZE : -_GROUP.size])",
        _one("test_python_administration", "test_what_bookies_list", "v3"),
        r"assert",
    ),
    Defect(
        "the delay of audits kept in a node of another name",
        "bkclient/repair/underreplication/marks.py",
        '_DELAY: Final = f"{_BASE}/lostBookieRecoveryDelay"',
        '_DELAY: Final = f"{_BASE}/lostbookierecoverydelay"',
        _one("test_repair", "test_java_sees_what_we_keep_about_repairs"),
        r"bookkeeper shell lostbookierecoverydelay",
    ),
)

DEFECTS: Final = (
    *_BYTES,
    *_QUORUMS,
    *_FEATURES,
    *_METADATA,
    *_NAMES,
    *_SECURITY,
    *_BOOKIES,
    *_REPAIR,
    *_ADMINISTRATION,
    *STORAGE_DEFECTS,
)
