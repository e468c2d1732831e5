"""The formulas behind :mod:`scenarios.clauses`, in the notation that docs/reference/invariants.md explains."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["FORMULAS"]

#: What each clause says, as a formula over the events of a history.
FORMULAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "A1": "APP_ACK(e, durable) => e <= LE",
        "A2": "APP_ACK(e)@s to w => #{b in ws(e, M@s): ok(w, b, e)@s} >= Qa",
        "A3": (
            "APP_ACK(e)@s to w => every APP_ACK(d) to w before s has d < e, and every d < e without one has #{b: ok(w, b, "
            "d)@s} >= Qa"
        ),
        "A4": "e in acked@s and lost(e)@s < Qa => some b in ws(e, M@s): held(b, e)@s",
        "A5": "e in acked@s => #{b in ws(e, M@s): held(b, e)@s} >= Qa - lost(e)@s",
        "A6": "APP_FAIL(e), then APP_ACK(d), of one incarnation => d < e",
        "A7": (
            "META_CAS(close, last_entry = l) by w, then APP_ACK(e) to w => e <= l; CLOSE_RESULT(code = 0) or "
            "APP_FAIL(code = -101) to w => no APP_ACK to w after it"
        ),
        "A8": "APP_ACK(e, content = x) and READ_RESULT(e, code = 0, content = y) => x = y",
        "A9": "READ_RESULT(e, denied)@s by ens(e, M@s), begun at t, and lost(e)@s < Qa => e not in acked@t and not e <= LE@t",
        "A11": (
            "CLOSE_RESULT(code = 0, last_entry = l)@s to w => M@s is CLOSED and every APP_ACK(e, durable) to w before s has "
            "e <= l"
        ),
        "A12": (
            "ADD_RESP(e, b in ws(e, M@s), code = -101)@s to w, e without Qa good answers => no APP_ACK to w of what had "
            "no Qa good answers before s, and the first APP_FAIL to w after s has code -101"
        ),
        "A13": "FAULT_DOMAINS before s, Qw > 1, APP_ACK(e)@s to w => #{rack of b in it: b in ws(e, M@s), ok(w, b, e)@s} > 1",
        "B1": "#{META_CAS(cause = close, outcome = ok, state = CLOSED)} <= 1",
        "B2": "v > C.version and M(v) is known => M(v) has the state, last entry, length and first entries of C",
        "B3": "META_CAS(ok), META_READ, OPEN_RESULT or CLOSE_RESULT with state CLOSED => (last_entry, length) = (LE, LEN)",
        "B4": "e in 0..LE, at s, the closing write or later => #{b in ws(e, M@s): held(b, e)@s} >= Qa - lost(e)@s",
        "B5": "READ_RESULT(e, code = 0, version = v)@s, and M(v) is known before s and CLOSED at l => e <= l",
        "B6": (
            "ADD_SEND(e, length = l) => l = sum of size(0..e); LEN = sum of size(0..LE), unless x that closed the ledger "
            "since its last REC_START sent READ_SEND(LE), had no READ_RESP(LE, code = 0) and sent no ADD_SEND(LE, recovery)"
        ),
        "B8": "ADD_SEND(e, recovery)@s => ADD_SEND(e, not recovery) before s",
        "B9": "META_CAS(state = CLOSED, last_entry = l) => max first(i) <= l + 1",
        "C1": "META_CAS(ok, expected_version = v, version = u) => u = v + 1",
        "C2": "META_CAS(ok, expected_version = v)@s => v = (M@s).version",
        "C3": "META_CAS(ok, state = y)@s on state x => x = none, y = OPEN; or x <= y in OPEN < IN_RECOVERY < CLOSED",
        "C4": "META_CAS(fragments) => first(0) = 0 and first(i) < first(i + 1)",
        "C5": (
            "META_CAS(fragments) => every ensemble has E distinct bookies; a bookie that is in the last ensemble before "
            "and after an ensemble change keeps its position; a write of cause close or recover keeps the first entries, "
            "and all fragments but the last"
        ),
        "C6": (
            "META_CAS(cause = ensemble, ok)@s, last first entry f => max acked@s < f <= confirmed@s + 1, and the "
            "fragments below f are those of M@s"
        ),
        "C7": "META_CAS(ok, state = IN_RECOVERY)@s, cause not rereplicate => fragments = (M@s).fragments",
        "C8": "ADD_SEND(e, b, not recovery)@s => b in ws(e, M(v)) for some v stored before s",
        "C10": "META_CAS(E, Qw, Qa) => E >= Qw >= Qa >= 1, and all have the same",
        "C11": "META_CAS(cause = delete, ok), then META_CAS(ok) => that is a creation, or there is one between",
        "C12": "META_CAS(cause = ensemble, ok)@s by a writer with deferred sync => fragments = (M@s).fragments",
        "D1": "fenced(b)@s => no BK_STORE(recovery = false)@s at b",
        "D2": "FENCE_RESP(b, code = 0)@s or REC_READ_RESP(b, fence, code = 0)@s => FENCE_SET(durable) at b before s",
        "D3": "REC_READ_RESP(b, denied)@s of run r => FENCE_SET at b before s, or BK_GC at b before s",
        "D4": (
            "first REC_READ_SEND@s of run r => every window of Qw neighbours in ens(r): #{b in it: no FENCE_RESP(b, code "
            "= 0 or denied) to r before s} < Qa"
        ),
        "D5": "BK_LAC(l), then BK_LAC(m), at b without a BK_CRASH between => l <= m",
        "D6": "ADD_SEND(lac = l)@s, BK_LAC(l)@s or LAC_ADV(l)@s => l <= confirmed@s",
        "D7": "APP_ACK(e, durable)@s to w => #{b in ws(e, M@s): ok(w, b, e)@s and BK_SYNC(e) at b before s} >= Qa",
        "D8": ("BK_STORE(e, source = c)@s at b, and ADD_SEND by c before s => ADD_SEND(e, bookie = b) by c before s"),
        "D9": "#{(content, length) of ADD_SEND(e) and BK_STORE(e)} <= 1",
        "D14": "BK_STORE(e) at b, then BK_STORE(e) at b => both have the same content and length",
        "D10": "READ_RESP(e, b, denied) or REC_READ_RESP(e, b, denied), asked at t, answered at s => not held(b, e) from t to s",
        "D11": "READ_RESP(b, denied) or REC_READ_RESP(b, denied), asked at t, answered at s => b was not in limbo from t to s",
        "D12": "BK_GC@s at b => b is in no ensemble of M@s, or the ledger is deleted at s",
        "D13": (
            "BK_ANSWER(operation = write-back, code = x)@s at b or ADD_RESP(recovery, code = x)@s of b => x != -101, "
            "or BK_GC at b before s"
        ),
        "D16": "FORCE_START@t, FORCE_RESULT(code = 0) of it, APP_ACK(e) before t, and lost(e) = 0 => e <= LE",
        "E1": "first REC_READ_SEND(e) of run r => first(r) <= e <= max(first(r) - 1, lac of FENCE_RESPs to r) + 1",
        "E2": "REC_READ_SEND(e, b) of run r => b in ws(e, ens(r))",
        "E3": "REC_DECIDE(e, negative)@s of run r => #{b in ws(e, ens(r)): REC_READ_RESP(e, b, denied) before s} > Qw - Qa",
        "E4": "REC_DECIDE(e, positive)@s of run r => REC_READ_RESP(e, code = 0) to r before s",
        "E5": (
            "REC_DECIDE(e, negative, bookies = B)@s => no BK_STORE(e, recovery = false) after s at a bookie of B, "
            "unless it loses its fence between"
        ),
        "E6": (
            "META_CAS(close, ok)@s of run r, e from its first recovery read to LE => #{b in ws(e, C): ADD_RESP(e, b, "
            "recovery, code = 0) to r before s} >= Qa"
        ),
        "E7": "META_CAS(close, last_entry = l)@s of run r => REC_DECIDE(l + 1, negative) of r before s",
        "E8": "META_CAS(close, ok)@s by another client than the one that created the ledger => M@s is IN_RECOVERY",
        "E9": "#{lac of ADD_SEND(recovery) of run r} <= 1",
        "E10": "ADD_SEND(e, recovery, content = x)@s of run r => REC_READ_RESP(e, code = 0, content = x) of r before s",
        "E11": "REC_DECIDE(unknown)@s of run r => no META_CAS(close) of r after s",
        "F1": "READ_RESULT(e, code = 0, lac = l) => e <= l",
        "F2": "LAC_ADV(l), then LAC_ADV(m), of one handle => l <= m",
        "F3": (
            "READ_RESULT(e, code = 0, content = x)@s => e <= LE, and a READ_RESULT(e) after s is neither denied, by "
            "ens(e, M@s) and with lost(e) < Qa, nor another content than x"
        ),
        "F4": (
            "READ_RESULT(e, code = 0, content = x)@s, and ADD_SEND(e, not recovery) before s => ADD_SEND(e, not recovery, "
            "content = x) before s"
        ),
        "F5": "BK_LAC(l) or LAC_ADV(l) => l <= LE",
        "G1": (
            "first ADD_SENDs(not recovery, ids not given) are of 0, 1, 2, ...; #{incarnations with ADD_SEND(not "
            "recovery)} <= 1"
        ),
        "G2": (
            "LAC l of writer w, then LAC m of w, as ADD_SENDs(not recovery) of higher entries than before carry them => l <= m; "
            "ADD_SEND(e, lac = l, not recovery) => l < e"
        ),
        "D15": (
            "the last BK_RESTART of b before s has cookie = missing or foreign => no BK_ANSWER@s, BK_STORE@s or FENCE_SET@s by b"
        ),
        "D17": (
            "the last BK_RESTART of b before s is @r with cookie = doubted, and b in M@r => no BK_STORE(b, recovery = false)@s; "
            "and if b is in the last ensemble of M@r and M@s, neither is CLOSED, and no BK_LIMBO(b, off) between r and s => no "
            "denial by BK_ANSWER@s of b"
        ),
        "G4": "APP_ADD(e, given) is accepted <=> no APP_ADD(e) was accepted before",
        "L1": "no fault after s, and clients that recover again and again from s on => META_CAS(close, ok) after s",
        "L2": (
            "APP_ADD(e) to w, and w alive at RUN_END(completed) or CLOSE_RESULT to w => APP_ACK(e), APP_FAIL(e) or "
            "APP_CANCEL(e) to w before it"
        ),
        "L3": (
            "#{b in ws(e, ens(r)): REC_READ_RESP(e, b, denied) of r before s} > Qw - Qa, and REC_DECIDE(e - 1) of r before s or "
            "e is the first that r reads, then REC_READ_RESP(e) of r after s => REC_DECIDE(e) of r between"
        ),
        "L4": "OPEN_START(recovery)@s with every bookie up and nothing lost from s on => META_CAS(close, ok)",
        "L8": (
            "OPEN_RESULT(code = x)@s to c, asked at t => x not denied; x = -25, and the ledger is stored at t => it is deleted "
            "between t and s"
        ),
        "L9": "OPEN_START(recovery) to c, and c alive when everything has arrived => #{OPEN_RESULT to c} = 1",
        "L10": (
            "OPEN_RESULT(code = -10)@s of run r that fails for lack of bookies => some e that r writes back: #{b in ws(e, own "
            "ensemble of r): ADD_RESP(e, b, recovery, code = 0) before s, or no ADD_RESP(e, b, recovery) before s} < Qa"
        ),
        "L11": "force begun by w, and w alive when everything has arrived => it ended once",
        "L12": "CLOSE_START to w, and w alive when everything has arrived => #{CLOSE_RESULT to w} = 1",
        "M1": (
            "ADD_RESP(e, b, request = n)@s to c => ADD_SEND(e, b, request = n) by c before s, and no other "
            "ADD_RESP(request = n) to c; likewise READ_RESP, FENCE_RESP and REC_READ_RESP"
        ),
        "M2": (
            "ADD_RESP(b, code = x, request = n)@s to c, and x one of 0, -7, -13, -101, and BK_RECV at b before s => "
            "BK_ANSWER(source = c, request = n, code = x) at b before s; likewise READ_RESP, FENCE_RESP and REC_READ_RESP"
        ),
        "H1": (
            "LOG_ACK(i, content = x), and a reader of LOG_READs or LOG_READ_END on both sides of i => LOG_READ(i, content = x) "
            "to it"
        ),
        "H2": "#{i: LOG_ACK(i, content = x) or LOG_READ(i, content = x)}@s <= #{LOG_PUB(content = x)}@s",
        "H3": (
            "LOG_ACK(i, epoch = f, message = m), or LOG_READ(i) of what LOG_PUB(epoch = f, message = m) published, and the same "
            "of j, g, n with i < j => (f, m) <= (g, n)"
        ),
        "H4": "LOG_READ(i), then LOG_READ(j), of one handle => i < j",
        "H21": "LOG_READ(i, publish_ms = t), and LOG_READ(j, publish_ms = u) with i <= j => t <= u",
        "H5": "LOG_LEDGER of l, ADD_SEND(not recovery)@s to l => LOG_APPEND of l before s",
        "H6": "META_CAS(cause = delete, outcome = ok)@s of l => l not in list@s",
        "H7": "LOG_PUB(epoch = f, message = m)@s after a LOG_APPEND(epoch = g) with g > f => no LOG_ACK(epoch = f, message = m)",
        "H8": (
            "LOG_ACK(entry = e, epoch = f)@s in l => LOG_APPEND(epoch = f) of l before s, and LOG_END(last_entry = d) of l "
            "has e <= d"
        ),
        "H9": "LOG_APPEND@s of l, and k in list@s => LOG_END of k before s, and META_CAS(state = CLOSED, ok) of k before s",
        "H10": "LOG_END(last_entry = d)@s of l => META_CAS(state = CLOSED, last_entry = d, ok) of l before s",
        "H11": (
            "LOG_TRIM@s of l, and c a listed cursor at s => last LOG_CURSOR(cursor = c, cause = opened or stored) before s is in "
            "k > l"
        ),
        "H12": (
            "LOG_READ(i)@s by cursor c to a, and a of the last LOG_CURSOR(cursor = c, cause = opened) before s => i not before "
            "any LOG_CURSOR(cursor = c, cause = opened or stored) before s"
        ),
        "H13": "LOG_CURSOR(cursor = c, cause = stored)@s by a => last LOG_CURSOR(cursor = c, cause = opened) before s is by a",
        "H14": (
            "LOG_CURSOR(cursor = c, cause = opened or stored)@s behind i, the first one not, LOG_ACK(i)@t, no LOG_TRIM of i's "
            "ledger and no LOG_CURSOR(cursor = c, cause = skipped) before both => LOG_READ(i) by cursor c before s or t"
        ),
        "H19": (
            "LOG_CURSOR(cursor = c, cause = opened)@s by a, LOG_MEMBER(cursor = c, cause = joined, member = n, mode != shared) "
            "by a, and by b with m before s, b not left before s => n < m, and a not left before s, unless a left after the "
            "opening of c before"
        ),
        "H20": (
            "LOG_READ@s by cursor c to a, and LOG_CURSOR(cursor = c, cause = opened) before s => LOG_CURSOR(cursor = c, cause = "
            "opened) by a before s"
        ),
        "H15": (
            "LOG_ACK(i)@s, and LOG_READ(j)@t or LOG_READ_END@t, s < t and i < j, to a reader that began with cause = compacted "
            "=> LOG_READ(i) to it, or i <= h and (key(i) = nil, or size(i) = 0, or some LOG_PUB(j, key = key(i)) before t with "
            "i < j is not acknowledged behind h before t), where h is the horizon at t"
        ),
        "H16": (
            "LOG_READ(i)@t to a reader that began with cause = compacted at s, i <= h => key(i) != nil, and size(i) > 0, and no "
            "LOG_ACK(j)@u with u < t, key(j) = key(i) and i < j <= h, where h is the horizon at s"
        ),
        "H17": (
            "LOG_COMPACT(cause = done)@s of l => META_CAS(state = CLOSED, ok) of l before s; META_CAS(cause = delete, outcome = "
            "ok)@s of l => the last LOG_COMPACT of l before s is not done"
        ),
        "H18": (
            "LOG_COMPACT(cause = done, h), then LOG_COMPACT(cause = done, g) => h <= g; LOG_TRIM@s of l with "
            "LOG_END(last_entry = e) of l, and h the horizon at s => (l, e) <= h"
        ),
    }
)
