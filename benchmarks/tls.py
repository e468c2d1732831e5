"""Appends over TLS: what encryption costs. Bookies of ours demand it and show a certificate, which clients verify.

python -m benchmarks.tls
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.append import append_many
from benchmarks.cluster import Bench, command
from benchmarks.java_client import values_of
from benchmarks.measuring import OURS, Contender, Result, Values, compared, in_turn, run_on

SIZES = (100, 1024)
ENTRIES = 20_000
WINDOW = 1000
_CERTIFICATES = Path(__file__).resolve().parents[1] / "tests" / "certificates"


def measure(bench: Bench) -> list[Result]:
    """Version 3, as it is most used."""
    authority = str(_CERTIFICATES / "authority.pem")
    options = (
        "--tls-certificate",
        str(_CERTIFICATES / "bookie.pem"),
        "--tls-key",
        str(_CERTIFICATES / "bookie-key.pem"),
    )
    properties = {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": authority,
    }
    results = []
    entries = bench.scaled(ENTRIES, WINDOW)
    with bench.bookies("ours", options=(*options, "--require-tls")) as bookies:
        for size in SIZES:

            def ours(way: str, size: int = size) -> Values:
                tls = {"enabled": True, "trust_file": authority}
                return run_on(way, append_many(bookies, 3, size, entries, WINDOW, tls=tls))

            def java(size: int = size) -> Values:
                answer = bench.java_call(
                    "append", bookies, 3, properties=properties, size=size, entries=entries, window=WINDOW
                )
                return values_of(answer, entries)

            contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
            if bench.java is not None:
                contenders["java-client"] = java
            params = {"bookies": "ours", "protocol": 3, "payload_bytes": size, "window": WINDOW, "entries": entries}
            results += compared("tls-append", params, in_turn(contenders, min(3, bench.rounds)))
    return results


if __name__ == "__main__":
    command(measure, "Appends over TLS beside the Java client.")
