"""Generate the protobuf modules of this repository from their ``.proto`` files.

The output is committed, so that using the package needs no compiler; a test regenerates it and compares. Run without
arguments to refresh the working tree, or with ``--output DIR`` to generate elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTOS = (
    "bkclient/wire/bookkeeper.proto",
    "bkclient/wire/metadata.proto",
    "bkclient/log/pulsar/pulsar.proto",
    "simbookie/storage/db/ledger_data.proto",
)


def generate(output: Path) -> None:
    """Write ``*_pb2.py`` and ``*_pb2.pyi`` under ``output``, in the packages' own layout."""
    output.mkdir(parents=True, exist_ok=True)
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            *PROTOS,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")


def main(arguments: list[str]) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT, help="directory to write below (default: the repository)")
    generate(parser.parse_args(arguments).output)


if __name__ == "__main__":
    main(sys.argv[1:])
