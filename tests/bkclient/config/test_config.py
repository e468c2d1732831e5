"""One validated object of groups of settings: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bkclient
from bkclient import (
    AdminSettings,
    ClientConfig,
    ConnectionSettings,
    DigestType,
    LimitSettings,
    PlacementSettings,
    TimeoutSettings,
    TlsSettings,
)
from bkclient.config.group import GroupedSettings, SettingsGroup, declared_settings, groups_of, nested
from bkclient.config.names import nearest
from bkclient.errors import ArgumentError

SETTINGS = declared_settings(ClientConfig)


def value_of(config: ClientConfig, name: str) -> Any:
    group, _, leaf = name.partition(".")
    return getattr(getattr(config, group), leaf)


def test_defaults_are_valid_and_equal_to_one_another() -> None:
    assert ClientConfig() == ClientConfig() == ClientConfig.of({}) == ClientConfig.from_properties({})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        # Flat, in the wrong group, misspelt, BookKeeper's key.
        ({"add_timeout_s": 5}, "there is no setting 'add_timeout_s'; it is timeouts.add_s ["),
        ({"tls_trust_file": "x"}, "there is no setting 'tls_trust_file'; it is tls.trust_file ["),
        ({"MaxInFlightEntries": 5}, "it is limits.max_in_flight_entries ["),
        ({"enabled": True}, "it is tls.enabled or health.enabled ["),
        ({"add_timeout": 5}, "there is no setting 'add_timeout'; did you mean timeouts.add_s"),
        ({"timeout": {}}, "there is no setting 'timeout'; did you mean timeouts? ["),
        ({"timeouts": {"add": 5}}, "there is no setting 'timeouts.add'; did you mean timeouts.add_s? ["),
        ({"timeouts": {"add_timeout_s": 5}}, "there is no setting 'timeouts.add_timeout_s'; it is timeouts.add_s ["),
        (
            {"timeouts": {"max_frame_size_bytes": 5}},
            "there is no setting 'timeouts.max_frame_size_bytes'; it is limits.max_frame_size_bytes [",
        ),
        (
            {"addEntryTimeoutSec": 5},
            "BookKeeper's addEntryTimeoutSec is timeouts.add_s here, and ClientConfig.from_properties() reads",
        ),
        ({"connections": {"numChannelsPerBookie": 5}}, "is connections.channels_per_bookie here"),
        ({"xyzzy": 5}, "there is no setting 'xyzzy' ["),
    ],
)
def test_an_unknown_name_is_refused_with_the_setting_that_was_meant(settings: dict[str, Any], message: str) -> None:
    for make in (ClientConfig.of, lambda settings: ClientConfig().with_changes(**settings)):
        with pytest.raises(ArgumentError) as caught:
            make(settings)
        assert message in str(caught.value)


def test_constructors_refuse_unknown_names_too() -> None:
    with pytest.raises(ArgumentError, match=re.escape("'add_timeout_s'; it is timeouts.add_s")):
        ClientConfig(add_timeout_s=5)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=re.escape("'timeouts.read_timeout_s'; it is timeouts.read_s")):
        TimeoutSettings(read_timeout_s=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("make", [ClientConfig, *groups_of(ClientConfig).values()])
def test_settings_without_names_are_refused(make: type) -> None:
    with pytest.raises(ArgumentError, match="settings are given by name"):
        make(5.0)


@pytest.mark.parametrize("settings", [None, [("timeouts", {})], "timeouts={}"])
def test_settings_that_are_no_mapping_are_refused(settings: Any) -> None:
    for make in (ClientConfig.of, ClientConfig.from_properties, TimeoutSettings.of):
        with pytest.raises(ArgumentError, match="must be a mapping, got"):
            make(settings)


@pytest.mark.parametrize("value", [None, 5, "hush", TlsSettings()])
def test_a_group_is_one_of_its_class(value: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: ClientConfig(admin=value),
        lambda: ClientConfig().with_changes(admin=value),
    ]
    for make in makers:
        with pytest.raises(ArgumentError, match="admin must be an AdminSettings, got") as caught:
            make()
        assert "hush" not in str(caught.value)


def test_the_constructor_takes_groups_only() -> None:
    with pytest.raises(ArgumentError, match="timeouts must be a TimeoutSettings, got dict"):
        ClientConfig(timeouts={"add_s": 1.0})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.kind in (int, float)])
def test_a_number_is_finite_no_text_no_switch_and_within_its_bounds(name: str) -> None:
    setting = SETTINGS[name]
    wrong: list[Any] = ["5", True, [5], float("nan"), float("inf")]
    if setting.low is not None:
        wrong.append(setting.low - (0.0005 if setting.kind is float else 1))
    if setting.high is not None:
        wrong.append(setting.high + 1)
    if setting.kind is int:
        wrong.append(1.5)
    if not setting.optional:
        wrong.append(None)
    for value in wrong:
        with pytest.raises(ArgumentError, match=f"{name} must be .*, got"):
            ClientConfig.of(nested({name: value}))


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.kind is bool])
def test_a_switch_is_true_or_false_and_nothing_like_it(name: str) -> None:
    for value in (1, "true", None):
        with pytest.raises(ArgumentError, match=f"{name} must be a bool, got"):
            ClientConfig.of(nested({name: value}))
    assert value_of(ClientConfig.of(nested({name: True})), name) is True


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("connections.protocol_version", 1, "connections.protocol_version must be 2 or 3, got 1"),
        ("connections.protocol_version", True, "must be 2 or 3, got True"),
        ("connections.channels_per_bookie", 65, "connections.channels_per_bookie must be <= 64, got 65"),
        ("timeouts.add_s", 0, "timeouts.add_s must be >= 0.001, got 0"),
        ("metadata.format_version", 4, "must be 1 or 2 or 3, got 4"),
        ("placement.policy", "rackaware", "must be 'rack-aware' or"),
        ("admin.digest_type", "crc32", "admin.digest_type must be"),
        ("placement.regions_to_write", "a;b", "placement.regions_to_write must be a tuple of names, got 'a;b'"),
        ("placement.regions_to_write", ("a", ""), "placement.regions_to_write must be a tuple of names"),
        ("metadata.uri", 7, "metadata.uri must be a str, got 7"),
    ],
)
def test_a_value_that_the_setting_cannot_have_is_refused_and_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ClientConfig.of(nested({name: value}))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("group", "low", "high"),
    [(name, low, high) for name, group in groups_of(ClientConfig).items() for low, high in group.ordered],
)
def test_two_settings_that_contradict_each_other_are_refused(group: str, low: str, high: str) -> None:
    apart = {name: 7 for pair in groups_of(ClientConfig)[group].ordered for name in pair}
    assert value_of(ClientConfig.of({group: apart}), f"{group}.{low}") == 7
    with pytest.raises(ArgumentError, match=f"{group}.{low} must be <= {group}.{high}, got 8 and 7"):
        ClientConfig.of({group: apart | {low: 8}})


def test_every_pair_that_has_an_order_is_known() -> None:
    pairs = {(name, *pair) for name, group in groups_of(ClientConfig).items() for pair in group.ordered}
    assert pairs == {
        ("connections", "backoff_initial_s", "backoff_max_s"),
        ("connections", "write_buffer_low_water_bytes", "write_buffer_high_water_bytes"),
        ("limits", "max_client_in_flight_bytes", "max_unanswered_bytes"),
        ("limits", "max_in_flight_bytes", "max_unanswered_bytes"),
        ("placement", "min_zones_per_write_quorum", "desired_zones_per_write_quorum"),
        ("writing", "resend_first_s", "resend_max_s"),
    }


def test_changes_make_another_configuration_and_are_checked() -> None:
    config = ClientConfig(timeouts=TimeoutSettings(add_s=1.0), limits=LimitSettings(throttle_per_s=9))
    other = config.with_changes(timeouts={"read_s": 2.0}, connections={"channels_per_bookie": 2})
    assert (other.timeouts.add_s, other.timeouts.read_s, other.connections.channels_per_bookie) == (1.0, 2.0, 2)
    assert other.limits is config.limits
    assert config.timeouts.read_s == 5.0
    whole = config.with_changes(timeouts=TimeoutSettings(read_s=2.0))
    assert (whole.timeouts.add_s, whole.timeouts.read_s) == (5.0, 2.0)
    with pytest.raises(ArgumentError, match=r"timeouts\.read_s must be"):
        config.with_changes(timeouts={"read_s": -1})
    with pytest.raises(ArgumentError, match=r"timeouts\.read_s must be"):
        config.timeouts.with_changes(read_s=-1)


@pytest.mark.parametrize("group", groups_of(ClientConfig))
def test_a_configuration_cannot_be_changed(group: str) -> None:
    config = ClientConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, group, None)
    part = getattr(config, group)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(part, dataclasses.fields(part)[0].name, 1)


def test_settings_by_name_may_be_what_toml_and_json_can_say() -> None:
    config = ClientConfig.of(
        {
            "placement": {"regions_to_write": ["a", "b"]},
            "admin": {"digest_type": "HMAC"},
            "timeouts": {"add_s": 7},
        }
    )
    assert config == ClientConfig(
        placement=PlacementSettings(regions_to_write=("a", "b")),
        admin=AdminSettings(digest_type=DigestType.HMAC),
        timeouts=TimeoutSettings(add_s=7),
    )
    assert ClientConfig.of({"timeouts": TimeoutSettings(add_s=7)}).timeouts.add_s == 7


def test_copies_and_pickles_are_equal() -> None:
    config = ClientConfig(
        timeouts=TimeoutSettings(add_s=1.0),
        placement=PlacementSettings(regions_to_write=("a",)),
        admin=AdminSettings(password=b"x"),
    )
    assert copy.deepcopy(config) == copy.copy(config) == pickle.loads(pickle.dumps(config)) == config != ClientConfig()
    assert hash(config) == hash(copy.deepcopy(config))
    assert ClientConfig.of(dataclasses.asdict(config)) == config
    assert "timeouts=TimeoutSettings(add_s=1.0," in repr(config)


def test_the_password_shows_nowhere() -> None:
    assert "hush" not in repr(ClientConfig(admin=AdminSettings(password=b"hush")))
    for settings in ({"admin": {"password": "hush"}}, {"admin": "hush"}):
        with pytest.raises(ArgumentError) as caught:
            ClientConfig.of(settings)
        assert "hush" not in str(caught.value)
    with pytest.raises(ArgumentError) as caught:
        ClientConfig.from_properties({"passwd": "hush", "throttl": "1"})
    assert "hush" not in str(caught.value)


def test_the_nearest_name_ignores_case_and_underscores_and_is_not_forced() -> None:
    assert nearest("ADDTIMEOUT_S", ["add_timeout_s", "read_timeout_s"]).startswith("; did you mean add_timeout_s")
    assert nearest("zzz", ["add_timeout_s"]) == ""


@pytest.mark.parametrize("group", groups_of(ClientConfig).items(), ids=lambda group: group[0])
def test_a_group_is_public_explained_and_knows_its_name(group: tuple[str, type[SettingsGroup]]) -> None:
    name, its_class = group
    assert its_class.prefix == f"{name}."
    assert (its_class.__doc__ or "").rstrip().endswith(".")
    assert getattr(bkclient, its_class.__name__) is getattr(bkclient.config, its_class.__name__) is its_class
    assert its_class.siblings == SETTINGS


def test_a_group_without_settings_of_bookkeeper_or_hints_still_refuses() -> None:
    with pytest.raises(ArgumentError, match=re.escape("there is no setting 'connections.xyzzy' [")):
        ConnectionSettings.of({"xyzzy": 1})
    assert issubclass(ClientConfig, GroupedSettings)


@pytest.mark.deep
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_asked_for_somewhere(name: str) -> None:
    package = Path(bkclient.__file__).parent
    declarations = package / "config"
    sources = [path.read_text() for path in package.rglob("*.py") if path.parent != declarations]
    group, _, leaf = name.partition(".")
    use = re.compile(rf'(?:\b{group}|settings)\.{leaf}\b|_of_client\("{name}"\)')
    assert any(use.search(source) for source in sources)
