"""What names, keys and addresses may look like.

Each function gives what is wrong with a text, in the API server's words; nothing if nothing is.  The same few names
come again and again, so answers are remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address, ip_network

from tinykube.server.memo import remembered

Wrong = tuple[str, ...]
NameRule = Callable[[str, bool], Wrong]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_UNDERSCORE = rf"{_LABEL_UNDERSCORE}(\.{_LABEL_UNDERSCORE})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_HEADER = "[-A-Za-z0-9]+"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_subdomain_underscore = re.compile(_SUBDOMAIN_UNDERSCORE).fullmatch
_is_key = re.compile(_KEY).fullmatch
_is_value = re.compile(_VALUE).fullmatch
_is_header = re.compile(_HEADER).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch

_ENDS = "and must start and end with an alphanumeric character"
_SUBDOMAIN_WORDS = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
)
_NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_KEY_WORDS = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"


def _pattern(words: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {listed}regex used for validation is '{pattern}')"


def between(low: int, high: int) -> str:
    """The words for a number out of bounds."""
    return f"must be between {low} and {high}, inclusive"


def percent(text: str) -> Wrong:
    """A whole number of percent."""
    if re.fullmatch("[0-9]+%", text, re.ASCII):
        return ()
    words = "a valid percent string must be a numeric string followed by an ending '%'"
    return (_pattern(words, "[0-9]+%", "1%", "93%"),)


@remembered(8192)
def dns_label(text: str) -> Wrong:
    """A label of a domain name."""
    wrong = ["must be no more than 63 characters"] if len(text.encode()) > 63 else []
    if not _is_label(text):
        words = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
        dots = _is_subdomain(text)
        wrong.append("must not contain dots" if dots else _pattern(words, _LABEL, "my-name", "123-abc"))
    return tuple(wrong)


@remembered(8192)
def dns_subdomain(text: str) -> Wrong:
    """A domain name."""
    wrong = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not _is_subdomain(text):
        wrong.append(_pattern(_SUBDOMAIN_WORDS, _SUBDOMAIN, "example.com"))
    return tuple(wrong)


@remembered(1024)
def dns_search(text: str) -> Wrong:
    """A domain to search, whose labels may have underscores."""
    wrong = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not _is_subdomain_underscore(text):
        words = _SUBDOMAIN_WORDS.replace("characters, '-'", "characters, '_', '-'")
        wrong.append(_pattern(words, _SUBDOMAIN_UNDERSCORE, "example.com"))
    return tuple(wrong)


def subdomain_name(text: str, prefix: bool = False) -> Wrong:
    """The name of most objects; as the `prefix` of a generated name it may end with a dash."""
    return dns_subdomain(_masked(text) if prefix else text)


def label_name(text: str, prefix: bool = False) -> Wrong:
    """The name of a namespace or a service."""
    return dns_label(_masked(text) if prefix else text)


def _masked(text: str) -> str:
    return text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text


@remembered(8192)
def label_key(text: str) -> Wrong:
    """The key of a label, with an optional domain in front."""
    parts = text.split("/")
    shape = _pattern(_KEY_WORDS, _KEY, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {shape} {optional}",)
    wrong: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            wrong.append("prefix part must be non-empty")
        wrong += [f"prefix part {each.replace('characters', 'bytes', 1) if each.startswith('must be no') else each}"
                  for each in (dns_subdomain(parts[0]) if parts[0] else ())]  # fmt: skip
    name = parts[-1]
    if not name:
        wrong.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        wrong.append("name part must be no more than 63 bytes")
    if not _is_key(name):
        wrong.append(f"name part {shape}")
    return tuple(wrong)


@remembered(8192)
def label_value(text: str) -> Wrong:
    """The value of a label."""
    wrong = ["must be no more than 63 bytes"] if len(text.encode()) > 63 else []
    if not _is_value(text):
        words = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
        wrong.append(_pattern(words, _VALUE, "MyValue", "my_value", "12345"))
    return tuple(wrong)


@remembered(4096)
def config_key(text: str) -> Wrong:
    """The key of a ConfigMap or a Secret."""
    wrong = ["must be no more than 253 characters"] if len(text.encode()) > 253 else []
    if not _is_config_key(text):
        words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        wrong.append(_pattern(words, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        wrong.append(f"must not be '{text}'")
    elif text.startswith(".."):
        wrong.append("must not start with '..'")
    return tuple(wrong)


@remembered(4096)
def variable(text: str) -> Wrong:
    """The name of an environment variable."""
    wrong = [] if text else ["environment variable name must be non-empty"]
    if not (text.isascii() and text.isprintable()) or "=" in text:
        wrong.append("a valid environment variable name must consist only of printable ASCII characters other than '='")
    return tuple(wrong)


@remembered(1024)
def port_name(text: str) -> Wrong:
    """The name of a port."""
    wrong = ["must be no more than 15 characters"] if len(text.encode()) > 15 else []
    if not re.fullmatch("[-a-z0-9]+", text):
        wrong.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        wrong.append("must contain at least one letter (a-z)")
    if "--" in text:
        wrong.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        wrong.append("must not begin or end with a hyphen")
    return tuple(wrong)


def port_number(port: int) -> Wrong:
    """The number of a port."""
    return () if 1 <= port <= 65535 else (between(1, 65535),)


def user_id(number: int) -> Wrong:
    """The number of a user or a group."""
    return () if 0 <= number <= 2147483647 else (between(0, 2147483647),)


def header(text: str) -> Wrong:
    """The name of an HTTP header."""
    if _is_header(text):
        return ()
    return (_pattern("a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"),)


def path_segment(text: str) -> Wrong:
    """What may stand between two slashes of a URL: the least that any object's name must be."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in text)


def is_no_ip(text: str) -> bool:
    """Whether a text is not even roughly an IP address."""
    return ip(text) == (_NO_IP,)


@remembered(4096)
def ip(text: str) -> Wrong:
    """An IP address."""
    try:
        address = ip_address(text)
    except ValueError:
        if _leading_zeros(text):
            return ("must not have leading 0s",)
        return (_NO_IP,)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


def is_no_cidr(text: str) -> bool:
    """Whether a text is not even roughly a network."""
    return cidr(text)[:1] == (_NO_CIDR,)


@remembered(1024)
def cidr(text: str) -> Wrong:
    """A network in CIDR notation."""
    address, slash, length = text.partition("/")
    try:
        if not slash or not length.isdigit():
            raise ValueError
        network = ip_network(text, strict=False)
    except ValueError:
        return (_NO_CIDR,)
    if isinstance(network.network_address, IPv6Address) and network.network_address.ipv4_mapped:
        return ("must not have an IPv4-mapped IPv6 address",)
    return (
        () if ip_address(address) == network.network_address else ("must not have bits set beyond the prefix length",)
    )


def _leading_zeros(text: str) -> bool:
    try:
        IPv4Address(".".join(part.lstrip("0") or "0" for part in text.split(".")))
    except AddressValueError:
        return False
    return True
