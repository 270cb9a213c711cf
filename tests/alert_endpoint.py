"""Answers of Prometheus, Alertmanager and `moescope alerts run`, made small, over a real socket."""

import json
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer


@contextmanager
def running(server: TCPServer):
    """Let a server answer until the block ends. Yields the address."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def speak(words: bytes):
    """Answer whatever is asked with these bytes, and hang up. Yields the address."""

    class Handler(BaseRequestHandler):
        def handle(self):
            self.request.recv(65536)
            self.request.sendall(words)

    with running(ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def serve(answers: Mapping[str, object], *, status: int = 404, seen: list | None = None):
    """Serve JSON by path; other paths get ``status``. Yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if seen is not None:
                seen.append((self.path, dict(self.headers)))
            path = self.path.partition("?")[0]
            body = json.dumps(answers.get(path, "no such page")).encode()
            self.send_response(200 if path in answers else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def rules(*groups):
    """Prometheus's answer with these groups."""
    return {"status": "success", "data": {"groups": list(groups)}}


def rule(name, *alerts, query="moe_findings > 0", **more):
    """A rule as Prometheus says it; ``more`` adds or replaces fields."""
    state = alerts[0]["state"] if alerts else "inactive"
    return {
        "name": name,
        "query": query,
        "duration": 300,
        "labels": {"severity": "page"},
        "annotations": {},
        "alerts": list(alerts),
        "health": "ok",
        "lastEvaluation": "2026-11-29T12:00:00.123456789Z",
        "type": "alerting",
        "state": state,
    } | more


def alert(name, state="firing", *, severity="page", since="2026-11-29T11:48:00.5Z", value="7", **labels):
    """An alert as Prometheus says it, with the links of a shipped rule."""
    return {
        "labels": {"alertname": name, "severity": severity, **labels},
        "annotations": {
            "summary": f"{name} of {labels.get('service', 'nobody')}",
            "description": f"What {name} means.",
            "runbook_url": f"http://localhost:8501/alerts?runbook={name}",
            "dashboard_url": "http://localhost:8501/expert_load?service=kimi%20k3&layer=40&expert=347",
        },
        "state": state,
        "activeAt": since,
        "value": value,
    }


def known(labels, *, silenced_by=(), inhibited_by=()):
    """An alert as Alertmanager's API v2 says it."""
    state = "suppressed" if silenced_by or inhibited_by else "active"
    status = {"state": state, "silencedBy": list(silenced_by), "inhibitedBy": list(inhibited_by)}
    return {"labels": labels, "annotations": {}, "status": status, "startsAt": "2026-11-29T11:50:00Z"}


def silence(number, *matchers, state="active"):
    """A silence as API v2 says it; a matcher is (name, value, is a pattern, is equal)."""
    keys = ("name", "value", "isRegex", "isEqual")
    return {
        "id": number,
        "matchers": [dict(zip(keys, one, strict=True)) for one in matchers],
        "endsAt": "2026-11-29T14:00:00.000Z",
        "createdBy": "ana",
        "comment": "new firmware",
        "status": {"state": state},
    }
