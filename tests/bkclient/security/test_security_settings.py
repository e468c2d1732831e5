"""From settings to TLS, and the parts that carry reasons and secrets."""

from __future__ import annotations

import pickle
import random
import ssl
from typing import Any

import pytest

import bkclient
from bkclient import ClientConfig, TimeoutSettings, TlsSettings
from bkclient.errors import ArgumentError, Code, Refusal, error_for
from bkclient.placement.quarantine import Quarantine
from bkclient.security.auth import AuthenticationError, SharedSecret
from bkclient.security.tls import client_context
from bkclient.wire import v2, v3
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.messages import (
    AuthMessage,
)
from simbookie.security import SharedSecretBookie
from tests.tls import MUTUAL, TRUSTING, client_security, pem

SECRET = b"a secret of enough bytes"


def test_a_refusal_is_its_code_and_survives_pickling() -> None:
    refusal = pickle.loads(pickle.dumps(Refusal(Code.SECURITY, "because")))
    assert refusal == Code.SECURITY
    assert refusal in {Code.SECURITY: None}
    assert refusal.reason == "because"
    assert error_for(refusal).message == "because"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trust_file": "absent.pem"}, "absent.pem: it cannot be read"),
        ({"trust_file": pem("password")}, "no certificates to trust"),
        ({"client_authentication": True}, "needs tls.certificate_file and tls.key_file"),
        ({**MUTUAL, "key_file": pem("bookie-key")}, "not a certificate and its key"),
        ({**MUTUAL, "key_file": pem("client-key-encrypted")}, "the key is encrypted; name the file"),
        *(
            (
                {**MUTUAL, "key_file": pem("client-key-encrypted"), "key_password_file": pem(wrong)},
                "password is wrong",
            )
            for wrong in ("authority", "make.sh")  # the second is too long for any password
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        client_security(**{**TRUSTING, **settings})
    assert message in str(caught.value)


def test_the_password_of_a_key_is_read_from_its_file() -> None:
    encrypted = {"key_file": pem("client-key-encrypted"), "key_password_file": pem("password")}
    assert client_security(**{**MUTUAL, **encrypted}).tls is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [(bytes.fromhex("feedfeed00000002"), "keytool -importkeystore"), (bytes.fromhex("308209c3"), "openssl pkcs12")],
)
def test_key_stores_of_java_are_recognised_and_the_error_says_how_to_convert_them(
    tmp_path: Any, content: bytes, message: str
) -> None:
    store = tmp_path / "store"
    store.write_bytes(content)
    for settings in ({"trust_file": str(store)}, {**MUTUAL, "key_file": str(store)}):
        with pytest.raises(ArgumentError, match="store") as caught:
            client_security(**{**TRUSTING, **settings})
        assert message in str(caught.value)


def test_a_secret_that_can_be_guessed_is_refused_and_none_is_shown() -> None:
    with pytest.raises(ArgumentError, match=">= 16 bytes, got"):
        SharedSecret(b"short")
    assert repr(SharedSecret(SECRET)) == "SharedSecret(...)"


def test_a_session_ends_where_it_should() -> None:
    session = SharedSecret(SECRET).session("b")
    bookie = SharedSecretBookie(SECRET).session("c")
    nonce = session.begin()
    assert nonce is not None
    proof = session.on_challenge(bookie.respond(nonce))
    assert proof is not None
    assert bookie.respond(proof) == b""
    assert bookie.is_authenticated
    assert session.on_challenge(b"") is None
    with pytest.raises(AuthenticationError, match="went on"):
        session.on_challenge(b"more")


def test_a_plug_in_s_message_of_version_2_is_no_complaint_about_tls() -> None:
    content = b"".join(v2.encode_request(AuthMessage("endless", b"x"), 1).buffers)[4:]
    with pytest.raises(MalformedMessage):
        v3.decode_response(content)


@pytest.mark.parametrize("prefix", ["tls", "client"])
def test_the_keys_of_a_java_client_say_the_same(prefix: str) -> None:
    properties = {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "OpenSSL",
        "tlsClientAuthentication": "true",
        "tlsHostnameVerificationEnabled": "false",
        "tlsCertificatePath": "client.pem",
        f"{prefix}KeyStoreType": "PEM",
        f"{prefix}KeyStore": "client-key.pem",
        f"{prefix}KeyStorePasswordPath": "password",
        f"{prefix}TrustStoreType": "PEM",
        f"{prefix}TrustStore": "ca.pem",
        "startTLSTimeoutSecs": "3",
    }
    assert ClientConfig.from_properties(properties) == ClientConfig(
        tls=TlsSettings(
            enabled=True,
            client_authentication=True,
            verify_hostname=False,
            certificate_file="client.pem",
            key_file="client-key.pem",
            key_password_file="password",
            trust_file="ca.pem",
        ),
        timeouts=TimeoutSettings(start_tls_s=3.0),
    )


def test_older_names_of_keys_win_over_newer_ones() -> None:
    config = ClientConfig.from_properties({"clientTrustStore": "old.pem", "tlsTrustStore": "new.pem"})
    assert config.tls.trust_file == "old.pem"


def test_tls_is_off_unless_it_is_asked_for() -> None:
    assert ClientConfig.from_properties({"tlsProviderFactoryClass": ""}) == ClientConfig()
    assert client_context(TlsSettings()) is None


def test_what_is_verified_is_what_the_settings_say() -> None:
    context = client_context(TlsSettings(**TRUSTING))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    context = client_context(TlsSettings(**TRUSTING, verify_hostname=False))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


async def test_connect_refuses_files_that_cannot_be_used_before_it_does_anything() -> None:
    with pytest.raises(ArgumentError, match=r"absent\.pem"):
        async with bkclient.connect(
            "zk://nobody.invalid:1/x", config=ClientConfig(tls=TlsSettings(enabled=True, trust_file="absent.pem"))
        ):
            pytest.fail("it was entered")


@pytest.mark.rule("PL-7")
@pytest.mark.parametrize("code", [Code.SECURITY, Code.UNAUTHORIZED])
def test_refusals_count_for_quarantine(code: Code) -> None:
    quarantine = Quarantine(random.Random(1), threshold=3, duration_s=60)
    for _ in range(3):
        quarantine.count("b", Refusal(code, "it is not to be trusted"))
    assert quarantine.end_interval() == ("b",)
