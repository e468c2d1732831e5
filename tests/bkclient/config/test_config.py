"""One validated object of settings: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import bkclient
from bkclient import ClientConfig, DigestType
from bkclient.config.fields import nearest, setting_of
from bkclient.errors import ArgumentError

FIELDS = {field.name: field for field in dataclasses.fields(ClientConfig)}


def test_defaults_are_valid_and_equal_to_one_another() -> None:
    assert ClientConfig() == ClientConfig() == ClientConfig.of({}) == ClientConfig.from_properties({})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"add_timeout": 5}, "there is no setting 'add_timeout'; did you mean add_timeout_s"),
        ({"MaxInFlightEntries": 5}, "did you mean max_in_flight_entries"),
        (
            {"addEntryTimeoutSec": 5},
            "BookKeeper's addEntryTimeoutSec is add_timeout_s here, and ClientConfig.from_properties()",
        ),
        ({"numChannelsPerBookie": 5}, "is channels_per_bookie here"),
        ({"xyzzy": 5}, "there is no setting 'xyzzy' ["),
    ],
)
def test_an_unknown_name_is_refused_with_the_setting_that_was_meant(settings: dict[str, Any], message: str) -> None:
    for make in (ClientConfig, ClientConfig().with_changes, lambda **named: ClientConfig.of(named)):
        with pytest.raises(ArgumentError) as caught:
            make(**settings)
        assert message in str(caught.value)


def test_settings_without_names_are_refused() -> None:
    with pytest.raises(ArgumentError, match="settings are given by name"):
        ClientConfig(*[5.0])


@pytest.mark.parametrize("settings", [None, [("add_timeout_s", 5)], "add_timeout_s=5"])
def test_settings_that_are_no_mapping_are_refused(settings: Any) -> None:
    with pytest.raises(ArgumentError, match="mapping"):
        ClientConfig.of(settings)
    with pytest.raises(ArgumentError, match="mapping"):
        ClientConfig.from_properties(settings)


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if setting_of(field).kind in (int, float)])
def test_a_number_is_finite_no_text_no_switch_and_within_its_bounds(name: str) -> None:
    setting = setting_of(FIELDS[name])
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
        with pytest.raises(ArgumentError, match=f"{name} must be"):
            ClientConfig(**{name: value})


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if setting_of(field).kind is bool])
def test_a_switch_is_true_or_false_and_nothing_like_it(name: str) -> None:
    for value in (1, "true", None):
        with pytest.raises(ArgumentError, match=f"{name} must be a bool"):
            ClientConfig(**{name: value})  # type: ignore[arg-type]
    assert getattr(ClientConfig.of({name: True}), name) is True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"wire_protocol_version": 1}, "wire_protocol_version must be 2 or 3, not 1"),
        ({"wire_protocol_version": True}, "must be 2 or 3"),
        ({"ledger_metadata_version": 4}, "must be 1 or 2 or 3"),
        ({"placement_policy": "rackaware"}, "must be 'rack-aware' or"),
        ({"admin_digest_type": "CRC32"}, "admin_digest_type must be"),
        ({"regions_to_write": "a;b"}, "regions_to_write must be a tuple of names"),
        ({"regions_to_write": ("a", "")}, "regions_to_write must be a tuple of names"),
        ({"metadata_uri": 7}, "metadata_uri must be a str"),
    ],
)
def test_a_value_that_the_setting_cannot_have_is_refused_and_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ClientConfig(**settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("write_buffer_low_water_bytes", "write_buffer_high_water_bytes"),
        ("reconnect_backoff_initial_s", "reconnect_backoff_max_s"),
        ("min_zones_per_write_quorum", "desired_zones_per_write_quorum"),
    ],
)
def test_two_settings_that_contradict_each_other_are_refused(low: str, high: str) -> None:
    assert getattr(ClientConfig.of({low: 7, high: 7}), low) == 7
    with pytest.raises(ArgumentError, match=f"{low} is above {high}"):
        ClientConfig.of({low: 8, high: 7})


def test_changes_make_another_configuration_and_are_checked() -> None:
    config = ClientConfig(add_timeout_s=1.0)
    other = config.with_changes(read_timeout_s=2.0)
    assert (other.add_timeout_s, other.read_timeout_s) == (1.0, 2.0)
    assert config.read_timeout_s == 5.0
    with pytest.raises(ArgumentError, match="read_timeout_s must be"):
        config.with_changes(read_timeout_s=-1)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClientConfig().add_timeout_s = 1.0  # type: ignore[misc]


def test_settings_by_name_may_be_what_toml_and_json_can_say() -> None:
    config = ClientConfig.of({"regions_to_write": ["a", "b"], "admin_digest_type": "HMAC", "add_timeout_s": 7})
    assert config == ClientConfig(regions_to_write=("a", "b"), admin_digest_type=DigestType.HMAC, add_timeout_s=7)


def test_copies_and_pickles_are_equal() -> None:
    config = ClientConfig(add_timeout_s=1.0, regions_to_write=("a",), admin_password=b"x")
    assert copy.deepcopy(config) == copy.copy(config) == pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(copy.copy(config))


def test_the_password_shows_nowhere() -> None:
    assert "hush" not in repr(ClientConfig(admin_password=b"hush"))
    with pytest.raises(ArgumentError) as caught:
        ClientConfig.of({"admin_password": "hush"})
    assert "hush" not in str(caught.value)
    with pytest.raises(ArgumentError) as caught:
        ClientConfig.from_properties({"passwd": "hush", "throttl": "1"})
    assert "hush" not in str(caught.value)


def test_the_nearest_name_ignores_case_and_underscores_and_is_not_forced() -> None:
    assert nearest("ADDTIMEOUT_S", ["add_timeout_s", "read_timeout_s"]).startswith("; did you mean add_timeout_s")
    assert nearest("zzz", ["add_timeout_s"]) == ""


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_is_asked_for_somewhere(name: str) -> None:
    package = Path(bkclient.__file__).parent
    declarations = package / "config"
    sources = [path.read_text() for path in package.rglob("*.py") if path.parent != declarations]
    use = re.compile(rf'(?:config|settings)\.{name}\b|_of_client\("{name}"\)')
    assert any(use.search(source) for source in sources)
