"""`dlaunch top --serve`: the same screens in a browser, one process for each page that is open.

All addresses stand under a secret first part of the path: who does not know it is told 403, a page of another site too.
The page takes nothing from other hosts.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

from aiohttp import web
from textual_serve.server import Server

_FOLDER = Path(__file__).parent
_RULES = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self' ws: wss:"
_HEADERS = {
    "Content-Security-Policy": _RULES,
    "Referrer-Policy": "no-referrer",  # the path is the secret
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class WebServer(Server):
    """Serves `command`, a program with a Textual app, on `host`:`port` under `/<token>/`."""

    def __init__(self, command: str, host: str, port: int) -> None:
        super().__init__(command, host, port, title="dlaunch top", templates_path=_FOLDER)
        self.token = secrets.token_urlsafe(24)
        self._pages: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{self.token}/"

    async def _make_app(self) -> web.Application:
        """The whole site: the app under the token, nothing beside it."""
        inside = await super()._make_app()
        inside.on_response_prepare.append(_add_headers)
        inside.router.add_get("/focus.js", _send_script)
        site = web.Application()
        site.add_subapp(f"/{self.token}", inside)
        site.router.add_route("*", "/{path:.*}", _forbid)
        return site

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        self.public_url = f"{request.scheme}://{request.host}"  # as it is reached, perhaps through a tunnel
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        page = asyncio.current_task()
        assert page is not None
        self._pages.add(page)
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages.discard(page)

    async def on_shutdown(self, app: web.Application) -> None:
        """End the app of every open page; else they would be waited for."""
        pages = list(self._pages)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)

    def serve(self, debug: bool = False) -> None:
        """Serve until Ctrl-C or SIGTERM; the address is printed once it can be opened."""
        self.debug = debug
        # Requests are not logged: their paths hold the token.
        web.run_app(self._make_app(), host=self.host, port=self.port, print=self._announce, access_log=None)

    def _announce(self, _: str) -> None:
        print(f"{self.url}\nwhoever has this address can do what you can; Ctrl-C ends it", flush=True)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing yet: `serve` does when it listens."""


async def _forbid(_: web.Request) -> web.StreamResponse:
    raise web.HTTPForbidden(text="the address lacks its token: use the one that dlaunch top --serve printed\n")


async def _send_script(_: web.Request) -> web.StreamResponse:
    return web.FileResponse(_FOLDER / "focus.js")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
