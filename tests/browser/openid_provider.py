"""A provider of logins: OpenID Connect with a code, PKCE and signed tokens, for one client and one person."""

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jwt

CLIENT = "moescope"
PERSON = {"sub": "13", "name": "Ada", "email": "ada@example.com"}


class OpenIdProvider:
    """Knows Ada and logs her in without a question, or refuses to while ``refuses`` is set."""

    def __init__(self) -> None:
        self.refuses = False
        self.secret = secrets.token_urlsafe()
        self.key = jwk.RSAKey.generate_key(2048, {"kid": "23", "use": "sig", "alg": "RS256"})
        self.asked: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self.metadata_url = f"{self.issuer}/.well-known/openid-configuration"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def describe(self) -> dict:
        """The discovery document."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes on with a code, or with a refusal."""
        assert asked["client_id"] == CLIENT
        answer = {"state": asked["state"]}
        if self.refuses:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe()
            self.asked[answer["code"]] = asked
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, brought: dict[str, str], credentials: str) -> dict:
        """Tokens for a code: once, and only for who asked for it."""
        asked = self.asked.pop(brought["code"])
        own = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        digest = hashlib.sha256(brought["code_verifier"].encode()).digest()
        assert credentials == f"Basic {own}"
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        assert brought["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        claims = PERSON | {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300}
        id_token = jwt.encode(
            {"alg": "RS256", "kid": self.key.kid}, claims | {"nonce": asked["nonce"]}, self.key
        )
        return {
            "access_token": secrets.token_urlsafe(),
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": id_token,
        }


def _handler_of(provider: OpenIdProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            if where.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(_flat(where.query)))
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif where.path == "/keys":
                self._answer({"keys": [provider.key.as_dict(private=False)]})
            elif where.path == "/.well-known/openid-configuration":
                self._answer(provider.describe())
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(provider.exchange(_flat(body), self.headers["Authorization"]))

        def _answer(self, content: dict) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests of a test are nothing to read."""

    return Handler


def _flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
