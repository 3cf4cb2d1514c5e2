"""The webhook's certificates, generation by generation.  No I/O; time is an argument.

A generation is an authority, the one certificate that it has signed, and that certificate's key.  The authority's own
key is forgotten at once, so nobody can sign another.  The API server trusts all authorities of the bundle; each replica
presents one certificate.  A new generation comes when two thirds of the latest one's life are over:

    made        it enters the Secret, which all replicas share
    trusted     its authority enters the bundle of both webhooks, beside the old one
    presented   once a replica has seen it trusted for some time, in which API servers learn of it
    expired     it leaves the Secret when the next one is made

So at any moment the API server trusts what any replica presents.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tinykube import certificates

MOST = 4
"""More generations than that are never needed at once."""
_PARTS = ("ca.crt", "tls.crt", "tls.key")


class BadSecret(ValueError):
    """A Secret that does not hold what we keep there."""


@dataclass(frozen=True, slots=True)
class Generation:
    """PEM texts, and what they say; `names` are host names and addresses."""

    authority: str
    certificate: str
    key: str
    made: datetime
    expires: datetime
    names: frozenset[str]

    def ages(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.made + (self.expires - self.made) * 2 / 3


def renewed(
    known: Sequence[Generation], names: frozenset[str], now: datetime, lifetime: timedelta
) -> list[Generation] | None:
    """The generations with a new one, or None if none is due.

    If only names are missing, the new one also has those of the latest: replicas with other names must not displace
    each other's for ever.
    """
    latest = known[-1] if known else None
    if latest is not None and not latest.ages(now):
        if names <= latest.names:
            return None
        names |= latest.names
    living = [each for each in known if each.expires > now]
    return [*living, make(names, now, lifetime)][-MOST:]


def presented(
    known: Sequence[Generation], trusted: Mapping[str, datetime], now: datetime, settling: timedelta
) -> Generation:
    """The generation to present: the latest whose authority has been trusted long enough, if need be another.

    `trusted` says since when we have seen each authority in the bundle.
    """
    living = [each for each in known if each.expires > now] or [known[-1]]
    settled = [each for each in living if each.authority in trusted and now >= trusted[each.authority] + settling]
    if settled:
        return settled[-1]
    return next((each for each in living if each.authority in trusted), living[0])


def bundle(known: Sequence[Generation]) -> str:
    """All authorities, as a `caBundle`."""
    return b64encode("".join(each.authority for each in known).encode()).decode()


def make(names: frozenset[str], now: datetime, lifetime: timedelta) -> Generation:
    """A new generation."""
    issuer_key, key = certificates.new_key(), certificates.new_key()
    made = now.replace(microsecond=0)
    subject = certificates.common_name(f"subak-webhook-ca {made:%Y-%m-%d %H:%M:%S}")
    issuer = certificates.authority(issuer_key, subject, made, lifetime)
    leaf = certificates.signed(key, "subak-webhook", names, issuer, issuer_key, made, lifetime)
    texts = (certificates.pem(issuer), certificates.pem(leaf), certificates.key_pem(key))
    return Generation(*texts, made, made + lifetime, names)


def written(known: Sequence[Generation]) -> dict[str, str]:
    """The `data` of the Secret."""
    texts = {
        f"{number}.{part}": text
        for number, each in enumerate(known, 1)
        for part, text in zip(_PARTS, (each.authority, each.certificate, each.key), strict=True)
    }
    return {name: b64encode(text.encode()).decode() for name, text in texts.items()}


def read(data: Mapping[str, str] | None) -> list[Generation]:
    """The generations in the `data` of a Secret, the latest last.  Raises BadSecret."""
    data = data or {}
    numbers = range(1, len(data) // len(_PARTS) + 1)
    names = [[f"{number}.{part}" for part in _PARTS] for number in numbers]
    if data.keys() != {name for each in names for name in each} or not data:
        raise BadSecret(f"its data are {', '.join(sorted(data)) or 'empty'}, not {', '.join(f'1.{p}' for p in _PARTS)}")
    return [_generation(each, *(_text(data, name) for name in each)) for each in names]


def _text(data: Mapping[str, str], name: str) -> str:
    try:
        return b64decode(data[name], validate=True).decode()
    except ValueError as error:
        raise BadSecret(f"data[{name}] cannot be read: {error}") from None


def _generation(fields: Sequence[str], authority: str, certificate: str, key: str) -> Generation:
    try:
        issuer = x509.load_pem_x509_certificate(authority.encode())
        leaf = x509.load_pem_x509_certificate(certificate.encode())
        private = serialization.load_pem_private_key(key.encode(), None)
        leaf.verify_directly_issued_by(issuer)
        if private.public_key() != leaf.public_key():
            raise ValueError("the key is not that of the certificate")
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # cryptography raises many kinds
        raise BadSecret(f"data[{fields[1]}] is no certificate of ours: {error}") from None
    made, expires = leaf.not_valid_before_utc + certificates.SKEW, leaf.not_valid_after_utc
    return Generation(authority, certificate, key, made, expires, frozenset(str(each.value) for each in names))
