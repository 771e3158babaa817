"""Access to the page: a token from the printed URL, and a Host header that names this machine.

The link's token is exchanged for two values. A cookie opens the page, but browsers send it to every
server of the host, whatever its port, and so to other users' too. What is in the runs also takes
the key, which the page keeps in its storage: that is its own server's alone. The page sends it in a
header (`assets/page.js`).
"""

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from flask import Flask, Response, redirect, request

from hvdtune.errors import UsageError

_DENIED = (
    "403: this hvdtune dashboard opens only with the link that was printed when it started "
    "(it carries a token). Open that link again.\n"
)
_NO_KEY = (
    "403: this request lacks the key that comes with the printed link of this hvdtune "
    "dashboard. Open that link again.\n"
)
_WRONG_HOST = (
    "403: this hvdtune dashboard does not answer under this host name. Use the printed link. "
    "Behind a proxy, start it with --prefix and the URL that browsers use.\n"
)
_WRONG_ORIGIN = (
    "403: this hvdtune dashboard accepts requests from its own pages only. "
    "Behind a proxy, start it with --prefix and the URL that browsers use.\n"
)
_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; worker-src blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


_PREFIX: Final = r"(/([A-Za-z0-9._~!$()*+,=:@-]|%[0-9A-Fa-f]{2})+)*/?"
_PORTS: Final = {"http": 80, "https": 443}
KEY_HEADER: Final = "X-Hvdtune-Key"
# What the cookie opens alone: the page without what is in it, and its scripts and styles.
_SHELL: Final = (
    "/",
    "/<path:path>",
    "/assets/<path:filename>",
    "/_dash-component-suites/<string:package_name>/<path:fingerprinted_path>",
    "/_favicon.ico",
)


@dataclass(frozen=True)
class PublicAddress:
    """The address at which a proxy serves the dashboard.

    Attributes:
        origin: scheme, host and port as browsers send them in `Origin`; "" if unknown.
        path: the prefix, percent-encoded, without the slash at its end; "" for none.
    """

    origin: str = ""
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "PublicAddress":
        """Read a path or a URL. Raises UsageError."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise _wrong_prefix(text) from None
        is_plain = re.fullmatch(_PREFIX, parts.path) and not re.search(r"/\.\.?(/|$)", parts.path)
        path = parts.path.rstrip("/")
        if is_plain and text == parts.path and text:
            return cls("", path)
        is_url = text == f"{parts.scheme}://{parts.netloc}{parts.path}" and "@" not in parts.netloc
        if not (is_plain and is_url and parts.scheme in _PORTS and parts.hostname):
            raise _wrong_prefix(text)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        shown = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
        return cls(f"{parts.scheme}://{host}{shown}", path)

    @property
    def host(self) -> str:
        """The host without its port, "" if unknown."""
        return urlsplit(self.origin).hostname or ""

    @property
    def is_encrypted(self) -> bool:
        return self.origin.startswith("https:")


def _wrong_prefix(text: str) -> UsageError:
    return UsageError(
        f"--prefix {text!r} is neither a path nor a URL, such as /user/me/proxy/8050/ or "
        "https://hub.example.org/user/me/proxy/8050/"
    )


def guard(
    server: Flask,
    token: str,
    host: str,
    script_hashes: Sequence[str],
    public: PublicAddress,
) -> None:
    """Put every route of `server` behind `token`; refuse foreign Host and Origin headers.

    The first visit carries `?token=`; the answer sets a cookie, hands the key over in the fragment
    of the address, which browsers keep to themselves, and drops the token from it. Neither cookie
    nor key tells the token. `script_hashes` are the CSP sources of the page's own inline scripts.
    The host of `public` is allowed, too, and so is its origin.
    """
    policy = _POLICY.format(scripts=" ".join(script_hashes))
    opens_page, opens_data = secrets.token_urlsafe(32), secrets.token_urlsafe(32)

    @server.before_request
    def admit() -> Response | None:
        if not (names_this_machine(request.host, host) or _host_of(request.host) == public.host):
            return _refuse(_WRONG_HOST)
        if not _own_page(request.headers.get("Origin"), public):
            return _refuse(_WRONG_ORIGIN)
        cookie = f"hvdtune_{_port_of(request.host)}"
        if _same(request.args.get("token", ""), token):
            answer = _without_token(opens_data, public.path)
            answer.set_cookie(
                cookie,
                opens_page,
                httponly=True,
                samesite="Lax",
                secure=public.is_encrypted,
                path=f"{public.path}/",
            )
            return answer
        if not _same(request.cookies.get(cookie, ""), opens_page):
            return _refuse(_DENIED)
        rule = request.url_rule.rule if request.url_rule else ""
        if rule not in _SHELL and not _same(request.headers.get(KEY_HEADER, ""), opens_data):
            return _refuse(_NO_KEY)
        if "hvdtune.keep" in request.environ:
            request.environ["hvdtune.keep"]()
        return None

    @server.after_request
    def harden(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        response.headers.setdefault("Cache-Control", "no-store")
        return response


def _port_of(host_header: str) -> str:
    """One browser may look at several dashboards of a host; each has a cookie of its own."""
    port = host_header.rpartition(":")[2]
    return port if port.isascii() and port.isdigit() else "80"


def names_this_machine(host_header: str, bound_host: str) -> bool:
    """True for a Host header that DNS rebinding cannot produce: an address or our own name."""
    name = _host_of(host_header)
    if name in {"localhost", bound_host.lower()}:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return not is_loopback(bound_host) and name in {
            socket.gethostname().lower(),
            socket.getfqdn().lower(),
        }
    return address.is_loopback or not is_loopback(bound_host)


def _host_of(host_header: str) -> str:
    name = host_header.rpartition(":")[0] if ":" in host_header.rpartition("]")[2] else host_header
    return name.strip("[]").rstrip(".").lower()


def is_loopback(host: str) -> bool:
    """True when only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _own_page(origin: str | None, public: PublicAddress) -> bool:
    """Check whether the request comes from a page of this dashboard.

    A proxy may replace the host of the request, but browsers still send the origin of the page.
    """
    if origin is None or (public.origin and origin.lower() == public.origin):
        return True
    return urlsplit(origin).netloc.lower() == request.host.lower()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _without_token(key: str, prefix: str) -> Response:
    rest = [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
    # Two slashes would begin another server's name; browsers read a backslash as one, and leave out
    # tabs and ends of lines.
    path = f"{prefix}/" + quote(request.path.lstrip("/\\"))
    query = f"?{urlencode(rest)}" if rest else ""
    answer = redirect(f"{path}{query}#key={key}", code=303)
    assert isinstance(answer, Response)
    return answer


def _refuse(sentence: str) -> Response:
    return Response(sentence, status=403, content_type="text/plain; charset=utf-8")
