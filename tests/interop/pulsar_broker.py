"""A broker of Apache Pulsar in a process of its own, which keeps its topics on bookies of somebody else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from simbookie.java import JavaNotFoundError, find_java
from tests.interop.builds import Build
from tests.ports import free_port

__all__ = ["PulsarBroker", "pulsar_build"]

_VERSION: Final = "3.0.7"
_JARS: Final = Path(__file__).resolve().parents[2] / "build" / "interop" / "pulsar"
#: What ``bin/pulsar`` opens of the JDK.
_OPENED: Final = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)


def pulsar_build() -> tuple[Build | None, str]:
    """Pulsar's jars and our programs, or None and why there are none."""
    try:
        find_java()
    except JavaNotFoundError as error:
        return None, f"without Pulsar: {error}"
    programs = (f"lib/pulsar-broker-{_VERSION}.jar", "classes/PulsarBroker.class")
    if not all((_JARS / each).is_file() for each in programs):
        return None, f"without Pulsar: no broker of {_VERSION} under build/interop/pulsar, where 'make interop' puts it"
    return Build(_VERSION, _JARS), ""


class PulsarBroker:
    """Serves while the block lasts. ``uri`` is that of the bookies' metadata, ``path`` is where in that ZooKeeper its own are.

    ``settings`` are further keys of ``broker.conf``.
    """

    def __init__(self, build: Build, folder: Path, uri: str, path: str, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        self._log_path = folder / "broker.log"
        self.url = ""
        self.admin_url = f"http://127.0.0.1:{free_port()}"
        store = f"zk:{urlsplit(uri).netloc}{path}"
        every = {
            "clusterName": "pulsar",
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "bookkeeperMetadataServiceUri": uri,
            "brokerServicePort": str(free_port()),
            "webServicePort": self.admin_url.rpartition(":")[2],
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "loadBalancerAutoBundleSplitEnabled": "false",  # it would interrupt a busy topic
            "loadBalancerOverrideBrokerNicSpeedGbps": "10",  # virtual network interfaces do not tell theirs
            "brokerDeleteInactiveTopicsEnabled": "false",
            **settings,
        }
        configuration = folder / "broker.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in every.items()))
        opened = " ".join(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                build.command("PulsarBroker", str(configuration), heap_mb=512),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "JDK_JAVA_OPTIONS": opened},
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        if not self.url:
            self.__exit__()
            raise RuntimeError(f"the broker did not start: {self._log_path.read_text(errors='replace')[-2000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
