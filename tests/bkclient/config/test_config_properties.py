"""BookKeeper's own keys and files: a configuration written for the Java client does here what it does there."""

from __future__ import annotations

import dataclasses
import logging
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from bkclient import AdminSettings, ClientConfig, DigestType, LimitSettings, MetadataSettings, TimeoutSettings
from bkclient.config.fields import setting_of
from bkclient.config.group import declared_settings, nested
from bkclient.config.keys import BASES, IGNORED_KEYS, REFUSED_KEYS
from bkclient.config.properties import parse_properties
from bkclient.errors import ArgumentError
from bkclient.repair.config import RepairConfig

KEYS = {name: setting.key for name, setting in declared_settings(ClientConfig).items()}


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("addEntryTimeoutSec", "7", "timeouts.add_s", 7.0),
        ("addEntryTimeoutSec", 7, "timeouts.add_s", 7),
        ("clientConnectTimeoutMillis", "2500", "timeouts.connect_s", 2.5),
        ("zkTimeout", " 30000 ", "timeouts.metadata_session_s", 30.0),
        ("firstSpeculativeReadTimeout", "0", "reading.speculative_first_s", 0),
        ("firstSpeculativeReadTimeout", "-1", "reading.speculative_first_s", 0.0),
        ("firstSpeculativeReadLACTimeout", "-1", "reading.speculative_lac_first_s", 0.0),
        ("throttle", "-1", "limits.throttle_per_s", 0.0),
        ("throttle", "5000", "limits.throttle_per_s", 5000),
        ("explicitLacInterval", "250", "writing.explicit_lac_interval_s", 0.25),
        ("explicitLacInterval", "-1", "writing.explicit_lac_interval_s", 0.0),
        ("addEntryQuorumTimeoutSec", "-1", "timeouts.add_quorum_s", None),
        ("addEntryQuorumTimeoutSec", "0", "timeouts.add_quorum_s", None),
        ("addEntryQuorumTimeoutSec", "9", "timeouts.add_quorum_s", 9.0),
        ("waitTimeoutOnBackpressureMs", "-1", "timeouts.backpressure_s", None),
        ("waitTimeoutOnBackpressureMs", "0", "timeouts.backpressure_s", 0.0),
        ("waitTimeoutOnBackpressureMs", "1500", "timeouts.backpressure_s", 1.5),
        ("tcpKeepIdle", "-1", "connections.tcp_keepalive_idle_s", None),
        ("tcpKeepCnt", "4", "connections.tcp_keepalive_probes", 4),
        ("clientTcpUserTimeoutMillis", "1500", "connections.tcp_user_timeout_s", 1.5),
        ("numChannelsPerBookie", "4", "connections.channels_per_bookie", 4),
        ("useV2WireProtocol", "true", "connections.protocol_version", 2),
        ("useV2WireProtocol", "FALSE", "connections.protocol_version", 3),
        ("useV2WireProtocol", True, "connections.protocol_version", 2),
        ("delayEnsembleChange", "yes", "writing.delay_ensemble_change", True),
        ("delayEnsembleChange", True, "writing.delay_ensemble_change", True),
        ("batchReadEnabled", "off", "reading.batch", False),
        ("ledgerMetadataVersion", "-1", "metadata.format_version", 3),
        ("ledgerMetadataVersion", "2", "metadata.format_version", 2),
        ("digestType", "MAC", "admin.digest_type", DigestType.HMAC),
        ("digestType", "crc32c", "admin.digest_type", DigestType.CRC32C),
        ("passwd", "öffne", "admin.password", "öffne".encode()),
        ("reppRegionsToWrite", "east; west;", "placement.regions_to_write", ("east", "west")),
        ("reppRegionsToWrite", "", "placement.regions_to_write", ()),
        ("networkTopologyScriptFileName", "", "placement.location_script", None),
        ("maxNumEnsembleChanges", "2147483647", "writing.max_ensemble_changes", 2**31 - 1),
        ("metadataServiceUri", "zk://a;b/l", "metadata.uri", "zk://a;b/l"),
        ("zkServers", "a:1,b:2", "metadata.uri", "zk://a:1;b:2/ledgers"),
        ("enableBookieAddressTracking", "false", "connections.follow_bookie_addresses", False),
        # Settings of ours that BookKeeper does not have go by their own names.
        ("limits.max_in_flight_entries", "77", "limits.max_in_flight_entries", 77),
        ("placement.client_location", "/here", "placement.client_location", "/here"),
    ],
)
def test_a_key_of_bookkeeper_says_what_it_says_in_java(key: str, value: Any, name: str, expected: Any) -> None:
    config = ClientConfig.from_properties({key: value})
    assert attrgetter(name)(config) == expected
    assert config == ClientConfig.of(nested({name: expected}))


@pytest.mark.parametrize(
    ("java_class", "policy"),
    [
        ("org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy", "rack-aware"),
        ("org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy", "region-aware"),
        ("org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy", "zone-aware"),
        ("org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy", "random"),
        ("RackawareEnsemblePlacementPolicyImpl", "rack-aware"),
        ("zone-aware", "zone-aware"),
    ],
)
def test_placement_policies_may_be_java_classes(java_class: str, policy: str) -> None:
    assert ClientConfig.from_properties({"ensemblePlacementPolicy": java_class}).placement.policy == policy


def test_a_base_holds_for_its_dependants_unless_they_are_given() -> None:
    config = ClientConfig.from_properties({"readTimeout": "9", "readEntryTimeoutSec": "3"})
    assert (config.timeouts.add_s, config.timeouts.read_s) == (9, 3)
    config = ClientConfig.from_properties({"maxSpeculativeReadTimeout": "4000", "speculativeReadTimeout": "500"})
    assert (config.reading.speculative_first_s, config.reading.speculative_max_s) == (0.5, 4.0)
    # Long polls have no base: their defaults are their own.
    assert config.reading.speculative_lac_first_s == 1.5


@pytest.mark.parametrize(
    ("properties", "uri"),
    [
        ({"zkServers": "a:1,b:2", "zkLedgersRootPath": "/bk/l"}, "zk://a:1;b:2/bk/l"),
        ({"zkServers": "a", "ledgerManagerType": "longhierarchical"}, "zk+longhierarchical://a/ledgers"),
        ({"zkServers": "a", "metadataServiceUri": "zk://b/l"}, "zk://b/l"),
        ({"zkLedgersRootPath": "/bk/l"}, None),
    ],
)
def test_servers_and_root_make_a_uri_and_give_way_to_one(properties: dict[str, str], uri: str | None) -> None:
    assert ClientConfig.from_properties(properties).metadata.uri == uri


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"addEntryTimoutSec": "5"}, "BookKeeper has no key 'addEntryTimoutSec'; did you mean addEntryTimeoutSec"),
        ({"numWorkrThreads": "5"}, "did you mean numWorkerThreads"),
        ({"timeouts.read_s": "5"}, "the setting timeouts.read_s is BookKeeper's readEntryTimeoutSec"),
        ({"readTimout": "5"}, "did you mean readTimeout"),
        ({"limits.max_inflight_entries": "5"}, "did you mean limits.max_in_flight_entries"),
        ({"max_in_flight_entries": "5"}, "it is limits.max_in_flight_entries"),
        ({"addEntryTimeoutSec": "soon"}, "addEntryTimeoutSec must be a number, got 'soon'"),
        ({"addEntryTimeoutSec": "0"}, "addEntryTimeoutSec = 0: timeouts.add_s must be >= 0.001, got 0.0"),
        ({"addEntryTimeoutSec": "nan"}, "timeouts.add_s must be a number, got nan"),
        ({"numChannelsPerBookie": "1.5"}, "connections.channels_per_bookie must be a whole number, got 1.5"),
        ({"batchReadEnabled": "maybe"}, "batchReadEnabled must be true or false, got 'maybe'"),
        ({"useV2WireProtocol": "2"}, "useV2WireProtocol must be true or false, got '2'"),
        ({"digestType": "MD5"}, "must be crc32 or mac or crc32c or dummy, got 'MD5'"),
        ({"ensemblePlacementPolicy": "com.example.Mine"}, ", got 'com.example.Mine'"),
        (
            {"zkServers": "a", "ledgerManagerType": "etcd"},
            "ledgerManagerType must be flat or hierarchical or longhierarchical, got 'etcd'",
        ),
        (
            {"tlsProviderFactoryClass": "x.TLSContextFactory"},
            " or org.apache.bookkeeper.tls.tlscontextfactory, got",
        ),
        ({"tlsKeyStoreType": "JKS"}, "only PEM files are read"),
        ({"clientTrustStoreType": "PKCS12"}, "only PEM files are read"),
        ({"tlsEnabledProtocols": "TLSv1.1"}, "TLS 1.2 and 1.3 are spoken"),
        ({"clientAuthProviderFactoryClass": "x.Sasl"}, "connect(auth=...)"),
        ({"clientRole": "system"}, "connections have one role"),
        ({"reppDnsResolverClass": "x.Mine"}, "connect(locations=...)"),
    ],
)
def test_a_key_or_value_that_cannot_be_kept_is_refused_with_the_reason(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        ClientConfig.from_properties(properties)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
def test_every_refused_key_is_refused_but_for_values_that_ask_for_nothing(key: str) -> None:
    with pytest.raises(ArgumentError, match=key):
        ClientConfig.from_properties({key: "something"})
    for harmless in ("", *REFUSED_KEYS[key][1]):
        assert ClientConfig.from_properties({key: harmless}) == ClientConfig()


def test_keys_that_mean_nothing_here_are_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="bkclient.config"):
        assert ClientConfig.from_properties(dict.fromkeys(IGNORED_KEYS, "1")) == ClientConfig()
    (record,) = caplog.records
    assert all(key in record.getMessage() for key in IGNORED_KEYS)


def test_one_file_may_configure_clients_and_auto_recovery() -> None:
    keys = [setting_of(field).key for field in dataclasses.fields(RepairConfig)]
    assert {key for key in keys if key is not None} <= set(IGNORED_KEYS)


def test_a_key_has_one_meaning() -> None:
    keys = [key for key in KEYS.values() if key is not None]
    everything = [*keys, *BASES, *IGNORED_KEYS, *REFUSED_KEYS]
    assert len(set(everything)) == len(everything)


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "bookkeeper.conf"
    path.write_text(
        "# a comment\n! another\n\naddEntryTimeoutSec = 5\nreadEntryTimeoutSec: 6\n"
        "throttle 100\n  zkServers=one:2181,\\\n     two:2181\nzkLedgersRootPath=/led\\u0067ers\npasswd = a\\=b\\\\\n"
    )
    assert ClientConfig.from_file(path) == ClientConfig(
        timeouts=TimeoutSettings(add_s=5, read_s=6),
        limits=LimitSettings(throttle_per_s=100),
        metadata=MetadataSettings(uri="zk://one:2181;two:2181/ledgers"),
        admin=AdminSettings(password=b"a=b\\"),
    )


def test_what_is_wrong_with_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bookkeeper.conf"
    for content, message in ((b"trottle=1", "trottle"), (b"throttle=1\nthrottle=2", "twice"), (b"\xff", "utf-8")):
        path.write_bytes(content)
        with pytest.raises(ArgumentError) as caught:
            ClientConfig.from_file(path)
        assert str(path) in str(caught.value)
        assert message in str(caught.value)
    with pytest.raises(ArgumentError, match="gone"):
        ClientConfig.from_file(tmp_path / "gone")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("k\\ e\\:y=v", {"k e:y": "v"}),
        ("k = a # no comment", {"k": "a # no comment"}),
        ("k = a\\\\", {"k": "a\\"}),
        ("k = a\\\n  b\\\n\tc", {"k": "abc"}),
        ("k = a\r\nl = b\r\n", {"k": "a", "l": "b"}),
        ("k = \\tx\\n", {"k": "x"}),
        ("k = a\\nb", {"k": "a\nb"}),
        ("k == b", {"k": "= b"}),
        ("\\u006b = ${HOME}", {"k": "${HOME}"}),
    ],
)
def test_properties_are_taken_apart(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_line_without_a_key_and_a_text_without_end_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no key"):
        parse_properties("= value")
    with pytest.raises(ArgumentError, match="must have <= 10000 lines, got 10002"):
        parse_properties("\n" * 10_001)
