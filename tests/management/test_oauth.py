"""Logins with tokens of an OAuth 2 provider, for which the tests run a small server (CM-226)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren import Broker, Settings
from warren.actors.management.config import Config
from warren.management import tokens
from warren.management.tokens import TokenRefused, Tokens, is_token
from warren.settings import SettingsError

from .conftest import Api, ports, until

jwt = pytest.importorskip("jwt", reason="needs pyjwt, from the extra 'test'")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason="needs cryptography")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="needs cryptography")

AUDIENCE, ISSUER = "warren", "https://login.example"


class Provider:
    """An OAuth provider: it issues tokens, signed with its private `keys`, and serves the public keys over HTTP."""

    def __init__(self):
        self.keys = {"one": ec.generate_private_key(ec.SECP256R1())}
        self.asked = 0

    @property
    def jwks(self):
        found = []
        for name, key in self.keys.items():
            algorithm = jwt.algorithms.ECAlgorithm if hasattr(key, "curve") else jwt.algorithms.RSAAlgorithm
            found.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
        return json.dumps({"keys": found}).encode()

    def token(self, user="olga", key="one", **claims):
        values = {"sub": user, "aud": AUDIENCE, "iss": ISSUER, "exp": int(time.time()) + 600, **claims}
        values = {name: value for name, value in values.items() if value is not None}
        private = self.keys[key]
        algorithm = "ES256" if hasattr(private, "curve") else "RS256"
        return jwt.encode(values, private, algorithm, headers={"kid": key})

    @contextmanager
    def serving(self):
        """Serve the public keys, and yield their address."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                provider.asked += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(provider.jwks)

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(scope="module")
def provider():
    return Provider()


@pytest.fixture(scope="module")
def broker(provider):
    with (
        provider.serving() as address,
        Broker(
            management=True,
            management_port=0,
            prometheus_port=0,
            management_interval=100,
            management_oauth_keys=address,
            management_oauth_audience=AUDIENCE,
            management_oauth_issuer=ISSUER,
        ) as broker,
    ):
        broker.add_user("olga", "a password that nobody uses", tags=["management"])
        broker.set_permissions("olga", configure="^olga", write="^olga", read=".*")
        broker.add_user("root", "another one", tags=["administrator"])
        ports(broker)
        yield broker


@pytest.fixture(scope="module")
def bearer(broker):
    """`bearer(token)` is a client of the API that sends this token."""
    port = ports(broker)["http"]
    first = Api(port)
    until(lambda: {"olga", "root"} <= {user["name"] for user in first.get("/api/users")})
    return lambda token: Api(port, user=None, headers={"authorization": f"Bearer {token}"})


def test_a_token_logs_its_user_in(bearer, provider):
    assert bearer(provider.token()).get("/api/whoami") == {"name": "olga", "tags": ["management"]}
    assert bearer(provider.token("root")).get("/api/whoami")["tags"] == ["administrator"]


def test_the_rights_are_those_of_the_user(bearer, provider):
    client = bearer(provider.token())
    assert client("GET", "/api/users")[1]["reason"] == "Not administrator user"
    assert client("PUT", "/api/queues/%2F/olga.queue", {})[0] == 201
    assert client("PUT", "/api/queues/%2F/other", {})[1]["reason"] == "Access refused."
    assert client("DELETE", "/api/queues/%2F/olga.queue")[0] == 204
    # RabbitMQ would grant rights by these scopes; warren grants those of the user only.
    client = bearer(provider.token(scope="warren.tag:administrator warren.configure:*/*"))
    assert client("GET", "/api/users")[0] == 401


def unsigned(provider):
    return jwt.encode({"sub": "root", "aud": AUDIENCE, "iss": ISSUER, "exp": 4_000_000_000}, None, "none")


def signed_with_the_public_key(provider):
    """A forged token: an HMAC whose secret is the public key, which everybody can read. A library that trusts the
    token's own `alg` accepts it.
    """
    (key,) = json.loads(provider.jwks)["keys"]
    header = {"alg": "HS256", "typ": "JWT", "kid": key["kid"]}
    claims = {"sub": "root", "aud": AUDIENCE, "iss": ISSUER, "exp": 4_000_000_000}
    text = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
    secret = provider.keys["one"].public_key().public_bytes(*_pem())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(text, secret)
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def _pem():
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return Encoding.PEM, PublicFormat.SubjectPublicKeyInfo


def of_a_stranger(provider):
    stranger = Provider()
    return stranger.token("root")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda provider: provider.token(exp=int(time.time()) - 3_600), "Signature has expired"),
        (lambda provider: provider.token(exp=None), 'Token is missing the "exp" claim'),
        (lambda provider: provider.token(aud="another"), "Audience doesn't match"),
        (lambda provider: provider.token(aud=None), 'Token is missing the "aud" claim'),
        (lambda provider: provider.token(iss="https://evil.example"), "Invalid issuer"),
        (lambda provider: provider.token(nbf=int(time.time()) + 3_600), "not yet valid"),
        (lambda provider: provider.token("nobody"), "there is no user 'nobody'. An administrator can add the user"),
        (lambda provider: provider.token(None), "the token has no claim 'sub'"),
        (unsigned, "the provider has no key"),
        (signed_with_the_public_key, "The specified alg value is not allowed"),
        (of_a_stranger, "Signature verification failed"),
        (lambda provider: "no.token.atall", "Invalid header"),
        (lambda provider: "x", "Not enough segments"),
    ],
)
def test_other_tokens_are_refused_with_the_reason(bearer, provider, made, reason):
    client = bearer(made(provider))
    status, value = client("GET", "/api/whoami")
    assert status == 401 and value["error"] == "not_authorized"
    if made is unsigned:
        # The token names no key, so the provider's only key is tried, and it does not allow the algorithm "none".
        assert "is not valid" in value["reason"]
    else:
        assert reason in value["reason"]
    assert 'Bearer realm="RabbitMQ Management", error="invalid_token"' in client.answer_headers["www-authenticate"]


def test_a_password_like_a_token_that_is_no_text_is_refused(broker):
    """The password has the form of a token, and a byte that is not UTF-8."""
    login = base64.b64encode(b"olga:eyJ\xff.e30.e30").decode()
    client = Api(ports(broker)["http"], user=None, headers={"authorization": f"Basic {login}"})
    status, value = client("GET", "/api/whoami")
    assert (status, value["error"]) == (401, "not_authorized")


def test_a_token_may_be_the_password(broker, provider):
    """A client that can send only a name and a password logs in with the token as the password."""
    port, token = ports(broker)["http"], provider.token()
    assert Api(port, f"olga:{token}").get("/api/whoami")["name"] == "olga"
    assert Api(port, f":{token}").get("/api/whoami")["name"] == "olga"
    assert "one of another user" in Api(port, f"root:{token}")("GET", "/api/whoami")[1]["reason"]
    assert Api(port, "olga:a password that nobody uses").get("/api/whoami")["name"] == "olga"


def test_a_cookie_does_not_outlive_the_token(broker, provider):
    client = Api(ports(broker)["http"], user=None)
    ends = int(time.time()) + 100
    body = f"username=olga&password={provider.token(exp=ends)}"
    status, _ = client.raw("POST", "/api/login", body)
    assert status == 200
    cookie = client.answer_headers["set-cookie"].split(";")[0]
    assert int(cookie.split(".")[1]) <= ends + tokens.LEEWAY
    assert client("GET", "/api/whoami", headers={"cookie": cookie})[1]["name"] == "olga"


def test_failed_logins_are_counted(bearer, provider, api=None):
    client = bearer(provider.token("root"))
    path = "/api/auth/attempts/" + client.get("/api/overview")["node"]

    def failed():
        return next(row for row in client.get(path) if row["protocol"] == "http")["auth_attempts_failed"]

    before = failed()
    assert bearer("x")("GET", "/api/whoami")[0] == 401
    assert failed() == before + 1


# -- the keys ---


def config(keys, **changes):
    settings = Settings(control_dir="/nowhere", management_oauth_keys=str(keys), management_oauth_audience=AUDIENCE)
    return replace(Config.of(settings), **changes)


@contextmanager
def loop():
    with asyncio.Runner() as runner:
        yield runner.run


def test_a_new_key_of_the_provider_is_fetched_and_asks_are_bounded(monkeypatch):
    provider = Provider()
    clock = [1_000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    with provider.serving() as address, loop() as run:
        checking = Tokens(config(address))
        assert run(checking.bearer(provider.token())).user == "olga"
        run(checking.bearer(provider.token()))
        assert provider.asked == 1, "known keys are not fetched again"
        provider.keys = {"two": rsa.generate_private_key(65_537, 2_048)}
        for _ in range(20):
            with pytest.raises(TokenRefused, match="has no key 'two'"):
                run(checking.bearer(provider.token(key="two")))
        assert provider.asked == 1, "a key that nobody has makes no request for each token"
        clock[0] += tokens.AGAIN
        assert run(checking.bearer(provider.token(key="two"))).user == "olga"
        assert provider.asked == 2


def test_a_key_that_was_withdrawn_ends_to_be_valid(monkeypatch):
    provider = Provider()
    clock = [1_000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: clock[0])
    with provider.serving() as address, loop() as run:
        checking = Tokens(config(address))
        stolen = provider.token()
        run(checking.bearer(stolen))
        provider.keys = {"two": ec.generate_private_key(ec.SECP256R1())}
        clock[0] += tokens.KEPT + 1
        with pytest.raises(TokenRefused, match="has no key 'one'"):
            run(checking.bearer(stolen))


def test_a_provider_that_does_not_answer_is_named(monkeypatch):
    provider = Provider()
    with provider.serving() as address:
        pass
    with loop() as run:
        checking = Tokens(config(address))
        with pytest.raises(TokenRefused, match=f"the keys at {address} cannot be read"):
            run(checking.bearer(provider.token()))
        with pytest.raises(TokenRefused, match=f"the keys at {address} could not be read a moment ago"):
            run(checking.bearer(provider.token()))


@pytest.mark.parametrize("text", [b"", b"no JSON", b"[]", b'{"keys": 3}', b'{"keys": [{"kty": "?"}]}', b'{"keys": []}'])
def test_keys_that_cannot_be_read_are_refused(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_bytes(text)
    with loop() as run, pytest.raises(TokenRefused, match="cannot be read"):
        run(Tokens(config(path)).bearer(Provider().token()))


PROVIDER = Provider()


@given(st.data())
def test_a_changed_token_logs_nobody_in(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "keys.json"
    path.write_bytes(PROVIDER.jwks)
    token = PROVIDER.token()
    # Decoding ignores the low bits of the last letter of each part, so another letter there need not change the token.
    ends = {token.index(".") - 1, token.rindex(".") - 1, len(token) - 1}
    at = data.draw(st.integers(0, len(token) - 1).filter(lambda at: at not in ends))
    letter = data.draw(st.sampled_from("abcXYZ019-_.").filter(lambda letter: letter != token[at]))
    with loop() as run:
        checking = Tokens(config(path))
        assert is_token(token) and run(checking.bearer(token)).user == "olga"
        with pytest.raises(TokenRefused):
            run(checking.bearer(token[:at] + letter + token[at + 1 :]))


# -- settings ---


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"management_oauth_keys": "https://a/keys"}, "tokens for other services must not log in here"),
        ({"management_oauth_keys": "http://a/keys", "management_oauth_audience": "x"}, "an https address"),
        ({"management_oauth_keys": "ftp://a/keys", "management_oauth_audience": "x"}, "an https address"),
    ],
)
def test_settings_by_which_too_many_could_log_in_are_refused(values, text):
    with pytest.raises(SettingsError, match=text):
        Settings(**values)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setattr("warren.settings.oauth.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'warren-mq\[oauth\]'"):
        Settings(management_oauth_keys="keys.json", management_oauth_audience="x")
