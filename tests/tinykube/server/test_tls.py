"""A server's identity: whatever is found in its directory, what it shows is valid, and what can stay the same does."""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import stat
import tempfile
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tinykube import certificates
from tinykube.server import backup
from tinykube.server.sqlite import open_store
from tinykube.server.state import StateError
from tinykube.server.tls import HOSTS, KeptIdentity, Lifetimes, ServerIdentity, identity

NOW = datetime(2027, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FILES = ("ca.key", "ca.crt", "tls.key", "tls.crt", "token")


class Clock:
    """Time passes only when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def leaf(identity: ServerIdentity) -> x509.Certificate:
    found = certificates.read(identity.certificate)
    assert found is not None
    return found


def authority(identity: ServerIdentity) -> x509.Certificate:
    found = certificates.read(identity.authority)
    assert found is not None
    return found


def check(identity: ServerIdentity, now: datetime) -> None:
    """It can be shown: key, certificate and authority belong together, and are valid."""
    for each in (leaf(identity), authority(identity)):
        assert each.not_valid_before_utc <= now < each.not_valid_after_utc
    key = certificates.read_key(identity.key)
    assert key is not None
    assert certificates.serves(leaf(identity), key, HOSTS, authority(identity))
    assert len(identity.token) >= 16
    identity.context()


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_and_the_rest_stays(tmp_path: Path) -> None:
    clock = Clock()
    kept = KeptIdentity(tmp_path, clock=clock)
    first = kept.current
    clock.now += 243 * DAY
    kept.renew()
    assert kept.current == first
    clock.now += DAY
    kept.renew()
    check(kept.current, clock.now)
    assert kept.current.certificate != first.certificate
    assert (kept.current.authority, kept.current.token) == (first.authority, first.token), "a kubeconfig stays valid"
    assert KeptIdentity(tmp_path, clock=clock).current == kept.current, "it is kept"
    assert kept.rest() == timedelta(days=365) * 2 / 3


def test_a_renewed_authority_is_trusted_by_who_trusts_the_old_one(tmp_path: Path) -> None:
    clock = Clock()
    first = KeptIdentity(tmp_path, clock=clock).current
    clock.now += 2_434 * DAY
    then = KeptIdentity(tmp_path, clock=clock).current
    check(then, clock.now)
    assert then.authority != first.authority
    assert then.token == first.token
    leaf(then).verify_directly_issued_by(authority(first))


@pytest.mark.parametrize("ahead", [timedelta(hours=2), 30 * DAY, 20_000 * DAY, -30 * DAY, -400 * DAY, -20_000 * DAY])
def test_what_a_wrong_clock_made_is_renewed_when_the_clock_is_right(tmp_path: Path, ahead: timedelta) -> None:
    clock = Clock()
    clock.now = NOW + ahead
    wrong = KeptIdentity(tmp_path, clock=clock)
    clock.now = NOW
    for found in (KeptIdentity(tmp_path, clock=clock), wrong):
        found.renew()
        check(found.current, NOW)
        assert found.current.token == wrong.current.token


def trusts(identity: ServerIdentity) -> None:
    """A client that insists on all that RFC 5280 asks, as Python does from 3.13 on, shakes hands with the server."""
    strict = ssl.create_default_context(cadata=identity.authority)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = strict.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = identity.context().wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version()
    assert server.version()


def test_a_strict_client_trusts_it() -> None:
    trusts(identity())


def test_an_authority_that_strict_clients_refuse_is_replaced_and_old_kubeconfigs_stay_valid(tmp_path: Path) -> None:
    first = identity(tmp_path, "early")
    key, old = certificates.read_key(first.authority_key), authority(first)
    assert key is not None
    lax = x509.CertificateBuilder(
        old.issuer, old.subject, key.public_key(), 1, old.not_valid_before_utc, old.not_valid_after_utc
    ).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    (tmp_path / "ca.crt").write_text(certificates.pem(lax.sign(key, hashes.SHA256())))
    found = identity(tmp_path)
    trusts(found)
    assert (found.certificate, found.token) == (first.certificate, first.token)
    assert identity(tmp_path) == found


def test_a_certificate_does_not_outlive_its_authority() -> None:
    clock = Clock()
    kept = KeptIdentity(None, lifetimes=Lifetimes(10 * DAY, 9 * DAY), clock=clock)
    for _ in range(40):
        clock.now += DAY
        kept.renew()
        check(kept.current, clock.now)
        assert leaf(kept.current).not_valid_after_utc <= authority(kept.current).not_valid_after_utc


def test_an_identity_of_an_earlier_version_stays_while_it_is_young(tmp_path: Path) -> None:
    clock = Clock()
    first = KeptIdentity(tmp_path, clock=clock).current
    (tmp_path / "ca.key").unlink()
    clock.now += 200 * DAY
    again = KeptIdentity(tmp_path, clock=clock)
    assert (again.current.authority, again.current.certificate) == (first.authority, first.certificate)
    assert again.rest() > timedelta(0)
    clock.now += 100 * DAY
    again.renew()
    check(again.current, clock.now)
    assert again.current.authority_key
    assert again.current.token == first.token
    assert again.current == KeptIdentity(tmp_path, clock=clock).current


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_missing_or_unreadable_is_made_anew(tmp_path: Path, name: str, content: bytes | None) -> None:
    first = identity(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    now = identity(tmp_path)
    check(now, datetime.now(UTC))
    assert identity(tmp_path) == now
    assert (now.token == first.token) == (name != "token")
    if name in ("tls.key", "tls.crt", "token"):
        assert now.authority == first.authority


@given(st.lists(st.sampled_from(["ours", "another", "elsewhere", "missing"]), min_size=5, max_size=5))
def test_files_of_several_identities_never_make_one_that_cannot_be_shown(
    tmp_path_factory: pytest.TempPathFactory, choices: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("mixed")
    for source in ("ours", "another", "elsewhere"):
        identity(folder / source)
    elsewhere = certificates.new_key()  # a certificate of ours, for a name that is not this server's
    (folder / "elsewhere" / "tls.key").write_text(certificates.key_pem(elsewhere))
    (folder / "mixed").mkdir()
    for name, choice in zip(FILES, choices, strict=True):
        if choice != "missing":
            shutil.copy(folder / choice / name, folder / "mixed" / name)
    found = identity(folder / "mixed")
    check(found, datetime.now(UTC))
    assert identity(folder / "mixed") == found


@pytest.mark.parametrize("name", FILES)
def test_a_link_or_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    kept = tmp_path / "identity"
    identity(kept)
    (kept / name).unlink()
    (kept / name).symlink_to(victim)
    with pytest.raises(StateError, match=f"{name}: cannot be used: it is a link; remove it, and it is made anew"):
        identity(kept)
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("precious", 0o644)
    (kept / name).unlink()
    (kept / name).mkdir()
    with pytest.raises(StateError, match=f"{name}: cannot be used: "):
        identity(kept)


def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "identity"
    before = os.umask(0)
    try:
        identity(kept)
    finally:
        os.umask(before)
    for each in kept.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        each.chmod(0o644)
    kept.chmod(0o755)
    identity(kept)
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept.iterdir()} == {0o600}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert {each.name for each in kept.iterdir()} == set(FILES)


def test_what_cannot_be_kept_is_shown_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    kept = KeptIdentity(tmp_path / "identity", clock=clock)
    shutil.rmtree(tmp_path / "identity")
    clock.now += 300 * DAY
    kept.renew()
    check(kept.current, clock.now)
    assert "cannot be kept" in caplog.text
    (tmp_path / "identity").mkdir()
    kept.renew()
    assert leaf(kept.current) == certificates.read((tmp_path / "identity" / "tls.crt").read_text())


jumps = st.lists(st.integers(-40 * 365, 40 * 365).map(lambda days: days * DAY), min_size=1, max_size=5)


@examples(6, 200)
@given(jumps)
def test_wherever_the_clock_jumps_all_that_was_ever_given_out_stays_trusted_and_backups_too(
    ahead: list[timedelta],
) -> None:
    """Whoever has an old kubeconfig trusts what is shown now, as long as the clock does not say that it is over."""
    with tempfile.TemporaryDirectory() as folder:
        directory, clock = Path(folder) / "state", Clock()
        _, journal = open_store(directory, beside=["identity"])
        kept = KeptIdentity(directory / "identity", clock=clock)
        first, authorities = kept.current, [authority(kept.current)]
        for number, each in enumerate(ahead):
            clock.now = max(clock.now + each, datetime.fromtimestamp(0, UTC))  # no clock can be set to less
            kept.renew()
            check(kept.current, clock.now)
            assert (kept.current.token, kept.current.authority_key) == (first.token, first.authority_key)
            authorities.append(authority(kept.current))
            for given_out in authorities:
                leaf(kept.current).verify_directly_issued_by(given_out)
            assert timedelta(0) < kept.rest() <= Lifetimes().certificate
            backup.write(directory, Path(folder) / f"{number}", ["identity"])
            backup.restore(Path(folder) / f"{number}", Path(folder) / f"restored{number}", ["identity"])
            again = KeptIdentity(Path(folder) / f"restored{number}" / "identity", clock=clock)
            assert again.current == kept.current
        journal.close()


@pytest.fixture(scope="module")
def made_once() -> ServerIdentity:
    return identity()


@examples(60, 3_000)
@given(name=st.sampled_from(["ca.key", "ca.crt", "tls.key", "tls.crt"]), place=st.floats(0, 1), bit=st.integers(0, 7))
def test_whatever_bit_of_a_key_or_certificate_changes_an_identity_can_be_shown(
    made_once: ServerIdentity, name: str, place: float, bit: int
) -> None:
    field = {"ca.key": "authority_key", "ca.crt": "authority", "tls.key": "key", "tls.crt": "certificate"}[name]
    begin, *lines, end = getattr(made_once, field).splitlines()
    content = bytearray(base64.b64decode("".join(lines)))
    content[min(int(place * len(content)), len(content) - 1)] ^= 1 << bit
    damaged = "\n".join([begin, base64.b64encode(content).decode(), end, ""])
    changed = replace(made_once, **{field: damaged})
    changed.renewed("tinykube", datetime.now(UTC), Lifetimes()).context()
