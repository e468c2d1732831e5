"""All subjects, one after the other, with one warm Java client.

python -m benchmarks.suite                             # what `make bench` runs
python -m benchmarks.suite --full --output FILE.json   # more rounds and more in each, 100,000 open ledgers
python -m benchmarks.suite --subject append --subject read
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import append, change, connecting, ledgers, logs, read, recovery, tail, tls
from benchmarks.cluster import Bench, Measure, a_bench
from benchmarks.measuring import Result, report


def memory(bench: Bench) -> list[Result]:
    """In a process of its own, whose memory nobody else has used."""
    command = [sys.executable, "-m", "benchmarks.memory", "--json", "--no-java", "--scale", str(bench.scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results: list[Result] = json.loads(done.stdout)["results"]
    return results


SUBJECTS: dict[str, Measure] = {
    "append": append.measure,
    "read": read.measure,
    "tail": tail.measure,
    "recovery": recovery.measure,
    "change": change.measure,
    "ledgers": ledgers.measure,
    "logs": logs.measure,
    "connecting": connecting.measure,
    "tls": tls.measure,
    "memory": memory,
}


def main(
    full: Annotated[bool, typer.Option("--full", help="more rounds, and more in each")] = False,  # noqa: FBT002
    rounds: Annotated[int | None, typer.Option(help="rounds counted  [default: 3; 7 if full]")] = None,
    scale: Annotated[float | None, typer.Option(help="multiplies amounts  [default: 0.1; 1.5 if full]")] = None,
    subject: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(SUBJECTS)}; may be given again")] = None,
    java: Annotated[bool, typer.Option(help="use Apache BookKeeper's client and bookies")] = True,  # noqa: FBT002
    output: Annotated[Path | None, typer.Option(help="also keep the JSON object in this file")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,  # noqa: FBT002
) -> None:
    """Everything that is measured of the client, beside the Java client and bare ceilings."""
    unknown = sorted(set(subject or ()) - set(SUBJECTS))
    if unknown:
        raise typer.BadParameter(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    results: list[Result] = []
    rounds, scale = rounds or (7 if full else 3), scale or (1.5 if full else 0.1)
    with a_bench(rounds=rounds, scale=scale, kinds=("ours", "apache"), protocols=(3, 2), java=java) as bench:
        for each in bench.without:
            print(each, file=sys.stderr)
        where = bench.machine()
        for name in subject or SUBJECTS:
            began = time.monotonic()
            try:
                results += SUBJECTS[name](bench)
            except Exception as error:  # noqa: BLE001 - one subject costs nobody the figures of others
                bench.without.append(f"{name} failed: {type(error).__name__}: {error}")
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            where["without"] = "; ".join(bench.without) or None
            if output is not None:
                output.parent.mkdir(parents=True, exist_ok=True)
                output.write_text(json.dumps({"results": results, "machine": where}, indent=1))
    report(results, where, as_json=json_output)


if __name__ == "__main__":
    typer.run(main)
