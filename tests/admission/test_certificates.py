"""Certificates: who trusts what at any moment, and what is read back from a Secret."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.admission import certificates
from subak.admission.certificates import BadSecret, Generation, presented, renewed
from tests.support.fuzz import examples

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LIFE, SETTLING = timedelta(days=90), timedelta(minutes=10)
NAMES = frozenset({"subak-webhook.subak-system.svc", "10.0.0.1", "fd00::1"})


def generation(name: str, made: datetime = NOW, names: frozenset[str] = NAMES) -> Generation:
    """One without real keys."""
    return Generation(name, f"leaf of {name}", "", made, made + LIFE, names)


@cache
def real() -> Generation:
    return certificates.make(NAMES, NOW, LIFE)


def test_what_is_written_is_read_back() -> None:
    known = [real(), certificates.make(frozenset({"a.b"}), NOW + LIFE / 2, LIFE)]
    assert certificates.read(certificates.written(known)) == known


def test_the_certificate_is_good_for_its_names_and_signed_by_its_authority() -> None:
    context = ssl.create_default_context(cadata=real().authority)
    assert [each["serialNumber"] for each in context.get_ca_certs()]
    assert certificates.read(certificates.written([real()]))[0].names == NAMES


OTHER = certificates.make(NAMES, NOW, LIFE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"1.tls.crt": None}, "its data are 1.ca.crt, 1.tls.key"),
        ({"more": "eA=="}, "its data are 1.ca.crt, 1.tls.crt, 1.tls.key, more"),
        ({"1.tls.crt": "?"}, r"data\[1.tls.crt\] cannot be read"),
        ({"1.tls.key": "/w=="}, r"data\[1.tls.key\] cannot be read"),
        ({"1.tls.crt": "eA=="}, r"data\[1.tls.crt\] is no certificate of ours"),
        ({"1.tls.key": b64encode(OTHER.key.encode()).decode()}, "the key is not that of the certificate"),
        ({"1.ca.crt": b64encode(OTHER.authority.encode()).decode()}, r"data\[1.tls.crt\] is no certificate of ours"),
    ],
)
def test_what_is_not_ours_is_told_apart(change: dict[str, str | None], problem: str) -> None:
    data = {**certificates.written([real()]), **change}
    with pytest.raises(BadSecret, match=problem):
        certificates.read({key: text for key, text in data.items() if text is not None})


def test_an_empty_secret_is_not_ours() -> None:
    with pytest.raises(BadSecret, match="its data are empty"):
        certificates.read({})
    with pytest.raises(BadSecret, match="its data are empty"):
        certificates.read(None)


def test_a_new_generation_comes_after_two_thirds_of_a_life_beside_the_old_one() -> None:
    first = generation("first")
    assert renewed([first], NAMES, NOW + timedelta(days=59), LIFE) is None
    known = renewed([first], NAMES, NOW + timedelta(days=60), LIFE)
    assert known is not None
    assert known[0] == first
    assert known[1].made == NOW + timedelta(days=60)
    again = renewed(known, NAMES, NOW + timedelta(days=120), LIFE)
    assert again is not None
    assert [each.made for each in again] == [NOW + timedelta(days=60), NOW + timedelta(days=120)]


def test_replicas_with_different_names_agree_in_the_end() -> None:
    known: list[Generation] = [generation("first")]
    for names in (frozenset({"a"}), frozenset({"b"}), frozenset({"a"}), frozenset({"b"})):
        known = renewed(known, names, NOW, LIFE) or known
    assert len(known) == 3
    assert {"a", "b"} | NAMES == known[-1].names


def test_the_first_certificate_is_presented_at_once() -> None:
    assert presented([generation("first")], {}, NOW, SETTLING).authority == "first"


def test_a_new_one_is_presented_when_its_authority_has_been_trusted_for_a_while() -> None:
    known = [generation("old"), generation("new", NOW + timedelta(days=60))]
    later = NOW + timedelta(days=61)
    assert presented(known, {}, later, SETTLING).authority == "old"
    assert presented(known, {"old": NOW}, later, SETTLING).authority == "old"
    assert presented(known, {"old": NOW, "new": later}, later, SETTLING).authority == "old"
    assert presented(known, {"old": NOW, "new": later}, later + SETTLING, SETTLING).authority == "new"
    assert presented(known, {"new": later}, later, SETTLING).authority == "new", "all that is trusted"
    assert presented(known, {"old": NOW}, NOW + LIFE, SETTLING).authority == "new", "the old one has expired"


# Any order of events: replicas, a leader that writes the bundle, an API server that learns of it late


@dataclass
class Replica:
    trusted: dict[str, datetime] = field(default_factory=dict)
    shows: str = ""


@dataclass
class World:
    """The Secret, the bundle in the configurations, and what the API server has learnt, each as of its own moment."""

    now: datetime = NOW
    secret: list[Generation] = field(default_factory=lambda: [generation("0")])
    bundle: frozenset[str] = frozenset({"0"})
    learnt: frozenset[str] = frozenset({"0"})
    written_at: datetime = NOW
    replicas: Sequence[Replica] = ()

    def pass_time(self, step: timedelta) -> None:
        """An API server learns of a bundle within less than the time that a new authority is given."""
        self.now += step
        if self.now - self.written_at >= SETTLING:
            self.learnt = self.bundle

    def renew(self) -> None:
        if self.secret[-1].ages(self.now):
            living = [each for each in self.secret if each.expires > self.now]
            self.secret = [*living, generation(str(self.now), self.now)]

    def write(self) -> None:
        wanted = frozenset(each.authority for each in self.secret)
        if wanted != self.bundle:
            self.bundle, self.written_at = wanted, self.now

    def look(self, replica: Replica) -> None:
        for each in self.secret:
            if each.authority in self.bundle:
                replica.trusted.setdefault(each.authority, self.now)
            else:
                replica.trusted.pop(each.authority, None)
        replica.shows = presented(self.secret, replica.trusted, self.now, SETTLING).authority


steps = st.lists(
    st.tuples(st.sampled_from(["time", "renew", "write", "restart"]), st.integers(0, 2), st.integers(1, 30)),
    max_size=40,
)


@pytest.mark.long
@examples(quick=400, ci=4_000)
@given(steps)
def test_the_api_server_trusts_what_any_replica_presents(story: list[tuple[str, int, int]]) -> None:
    world = World(replicas=[Replica() for _ in range(3)])
    for what, who, much in story:
        replica = world.replicas[who]
        match what:
            case "time":
                world.pass_time(timedelta(minutes=much) if who else timedelta(days=3 * much))
            case "renew":
                world.renew()
            case "write":
                world.write()
            case "restart":
                replica.trusted.clear()
        for each in world.replicas:
            world.look(each)  # every replica looks more often than certificates expire
        living = {each.authority for each in world.secret if each.expires > world.now}
        for each in world.replicas:
            assert each.shows in world.learnt or each.shows not in living or not living & world.learnt
