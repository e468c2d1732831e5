"""A process that tells how many bytes of messages it has got whenever it is asked to."""

from __future__ import annotations

import sys

import msgpack

if __name__ == "__main__":
    total = 0
    for message in msgpack.Unpacker(open(0, "rb", buffering=0)):  # noqa: SIM115 - standard input, for as long as it lives
        if message[0] == "how-many":
            sys.stdout.buffer.write(msgpack.packb(["got", total]))
            sys.stdout.buffer.flush()
        elif message[0] == "data":
            total += len(message[1])
