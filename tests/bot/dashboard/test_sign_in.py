"""Signing in with GitHub, from the link to the cookie; and everything that must not sign anybody in."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from cryptography.fernet import Fernet
from sqlalchemy import select, update

from bot.dashboard.access import CACHE_SECONDS, Access
from bot.dashboard.sessions import Session
from ptopt.github.oauth import challenge
from service.database import reading, writing
from service.models import DashboardSession
from tests.bot.conftest import Serve
from tests.bot.dashboard.world import NOW, World, form
from tests.bot.dashboard.world import world as new_world

SESSION, FLOW = "ptopt_session", "ptopt_sign_in"


def sessions(world: World) -> list[DashboardSession]:
    with reading(world.engine) as session:
        return list(session.scalars(select(DashboardSession)))


def signed_in(client: httpx.Client) -> bool:
    return client.get("/dashboard/api/repositories").status_code == 200


def test_from_the_link_to_the_page(world: World) -> None:
    world.repository("octo/first", dev="read")
    client = world.stranger()
    away = client.get("/dashboard/reviews?repository=1")
    assert away.status_code == 303
    sign_in = client.get(away.headers["location"])
    assert "/dashboard/sign-in/github?onward=reviews%3Frepository%3D1" in sign_in.text
    answer = world.callback(client, "dev", "reviews")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboard/reviews"
    page = client.get("/dashboard/reviews")
    assert page.status_code == 200
    assert "octo/first" in page.text
    cookie = next(each for each in answer.headers.get_list("set-cookie") if each.startswith(SESSION))
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/dashboard" in cookie


def test_what_is_asked_of_github(world: World) -> None:
    client = world.stranger()
    begun = client.get("/dashboard/sign-in/github")
    address = urlsplit(begun.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert f"{address.scheme}://{address.netloc}" == world.github.html
    assert asked["redirect_uri"] == f"{world.url}/dashboard/callback"
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["state"]) >= 32
    client.get(world.authorized(begun.headers["location"], "dev"))
    (exchange,) = [each for each in world.github.requests if each.path == "/login/oauth/access_token"][-1:]
    assert challenge(exchange.json["code_verifier"]) == asked["code_challenge"]
    again = client.get("/dashboard/sign-in/github")
    assert parse_qs(urlsplit(again.headers["location"]).query)["state"] != [asked["state"]]


def test_tokens_and_cookies_are_not_readable(world: World) -> None:
    client = world.person("dev")
    tokens = [token.value for token in world.github.tokens.values() if token.app is not None]
    stored = "".join(f"{row.id}{row.sealed_token}{row.login}" for row in sessions(world))
    cookie = client.cookies[SESSION]
    assert tokens and not any(token in stored or token in cookie for token in tokens)
    assert not any(row.id in cookie for row in sessions(world))


def test_a_callback_that_did_not_begin_in_this_browser(world: World) -> None:
    mallory, victim = world.stranger(), world.stranger()
    begun = mallory.get("/dashboard/sign-in/github")
    link = world.authorized(begun.headers["location"], "mallory")
    assert victim.get(link).status_code == 400  # no cookie
    victim.get("/dashboard/sign-in/github")
    assert victim.get(link).status_code == 400  # of another sign-in
    assert not signed_in(victim)
    assert mallory.get(link).status_code == 303
    assert mallory.get(link).status_code == 400  # once


@pytest.mark.parametrize("code", ["", "unknown", "../../user", "a b", "x" * 500])
def test_a_code_that_github_did_not_give(world: World, code: str) -> None:
    client = world.stranger()
    begun = client.get("/dashboard/sign-in/github")
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    answer = client.get("/dashboard/callback", params={"code": code, "state": state})
    assert answer.status_code == 502
    assert not signed_in(client)


def test_the_person_cancels(world: World) -> None:
    client = world.stranger()
    begun = client.get("/dashboard/sign-in/github")
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    answer = client.get("/dashboard/callback", params={"error": "access_denied", "state": state})
    assert answer.status_code == 403
    assert "cancelled" in answer.text


@pytest.mark.parametrize(
    "onward",
    [
        "//evil.example",
        "https://evil.example",
        "reviews/../../x",
        "reviews\r\nX: y",
        "javascript:x",
        "re views",
    ],
)
def test_it_leads_nowhere_else(world: World, onward: str) -> None:
    answer = world.callback(world.stranger(), "dev", onward)
    assert answer.headers["location"] == "/dashboard/reviews"


@pytest.mark.parametrize("cookie", ["", "x", "é", Fernet(Fernet.generate_key()).encrypt(b"{}").decode()])
def test_a_forged_cookie(world: World, cookie: str) -> None:
    client = world.stranger()
    headers = {"Cookie": f"{SESSION}={cookie}".encode()}
    assert client.get("/dashboard/api/repositories", headers=headers).status_code == 401
    assert client.get("/dashboard/reviews", headers=headers).status_code == 303


def test_the_cookie_of_a_sign_in_is_no_session(world: World) -> None:
    client = world.stranger()
    client.get("/dashboard/sign-in/github")
    client.cookies.set(SESSION, client.cookies[FLOW], path="/dashboard")
    assert not signed_in(client)


def test_a_session_ends(world: World) -> None:
    client = world.person("dev")
    assert signed_in(client)
    with writing(world.engine) as session:
        session.execute(update(DashboardSession).values(expires_at=NOW))
    assert not signed_in(client)


def test_signing_out(world: World) -> None:
    client, other = world.person("dev"), world.person("dev")
    cookie = client.cookies[SESSION]
    fields = form(client.get("/dashboard/reviews"), "/sign-out")
    assert client.post("/dashboard/sign-out", data={"csrf": "x" * 64}).status_code == 403
    theirs = form(other.get("/dashboard/reviews"), "/sign-out")
    assert client.post("/dashboard/sign-out", data=theirs).status_code == 403
    assert signed_in(client)
    assert client.post("/dashboard/sign-out", data=fields).status_code == 303
    assert SESSION not in client.cookies
    client.cookies.set(SESSION, cookie, path="/dashboard")
    assert not signed_in(client)
    assert signed_in(other)


def test_github_ends_the_sign_in(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.dashboard.access.CACHE_SECONDS", 0.0)
    with new_world(serve) as world:
        client = world.person("dev")
        assert signed_in(client)
        world.github.tokens.clear()
        assert client.get("/dashboard/reviews").status_code == 303
        assert sessions(world) == []
        world.github.faults.add("GET", r"/user/installations", "500", times=9)
        assert world.person("dev").get("/dashboard/reviews").status_code == 503


def test_github_is_asked_once_a_minute(world: World) -> None:
    repo = world.repository("octo/asked", dev="read")
    token = world.github.signed_in_token("dev")
    session, seconds = Session("an id", "dev", token, "a token"), [0.0]
    access = Access(world.github.url, clock=lambda: seconds[0])

    def asked() -> int:
        return sum(request.path == "/user/installations" for request in world.github.requests)

    before = asked()
    assert repo.id in access.of(session).repositories
    repo.permission("dev", "none")
    seconds[0] = CACHE_SECONDS - 1
    assert repo.id in access.of(session).repositories
    assert asked() == before + 1
    seconds[0] = CACHE_SECONDS
    assert repo.id not in access.of(session).repositories
    access.forget(session.id)
    access.of(session)
    assert asked() == before + 3


def test_without_a_client(serve: Serve) -> None:
    with new_world(serve, client_id=None, client_secret=None) as world:
        answer = world.stranger().get("/dashboard/sign-in/github")
        assert answer.status_code == 503
        assert "PTOPT_CLIENT_ID" in answer.text
    with new_world(serve, secret_key=None) as world:
        answer = world.stranger().get("/dashboard/sign-in")
        assert answer.status_code == 503
        assert "PTOPT_SECRET_KEY" in answer.text


def test_switched_off(serve: Serve) -> None:
    with new_world(serve, dashboard=False) as world:
        for path in ("/dashboard", "/dashboard/sign-in", "/dashboard/static/htmx.min.js"):
            assert world.stranger().get(path).status_code == 404


def test_https_makes_cookies_secure_and_a_path_of_the_proxy_is_kept(serve: Serve) -> None:
    with new_world(serve, public_url="https://ptopt.example.org/bot") as world:
        begun = world.stranger().get("/dashboard/sign-in/github")
        cookie = begun.headers["set-cookie"]
        assert "Secure" in cookie and "Path=/bot/dashboard" in cookie
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["redirect_uri"] == ["https://ptopt.example.org/bot/dashboard/callback"]
        page = world.stranger().get("/dashboard/sign-in").text
        assert 'href="/bot/dashboard/static/dashboard.css"' in page
