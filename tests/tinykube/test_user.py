"""Users as an API server describes them to webhooks."""

from __future__ import annotations

from tinykube.user import AUTHENTICATED, User


def test_what_is_said_of_a_user_is_read_back() -> None:
    for user in (User("a"), User("b", ("g", AUTHENTICATED), "u-1", "n1")):
        assert User.of(user.info()) == user


def test_little_may_be_known_of_a_user() -> None:
    assert User.of({}) == User("", ())
    assert (
        User.of({"username": "a", "groups": None, "extra": {"authentication.kubernetes.io/node-name": []}}).node == ""
    )
