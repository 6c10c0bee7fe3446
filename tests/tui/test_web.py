"""The screens in a browser: nobody without the token, nothing from other hosts, and the app behind it."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest
from aiohttp import ClientResponse, ClientSession, WSMsgType, WSServerHandshakeError

from tests.support.browser import Browser
from tests.support.dlaunch import Dlaunch

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that `dlaunch top --serve` prints; afterwards it must end at once, and its pages with it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("web")
    dlaunch = Dlaunch(folder / "home", folder)
    argv = dlaunch.argv("top", "--serve", str(port))
    server = subprocess.Popen(argv, env=dlaunch.env, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout:
        yield server.stdout.readline().strip()
        pages = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_S) == 0
    assert psutil.wait_procs(pages, PATIENCE_S)[1] == []


async def get(client: ClientSession, path: str) -> tuple[ClientResponse, str]:
    async with client.get(path) as answer:
        return answer, await answer.text(errors="replace")


async def first_frame(client: ClientSession, path: str, words: str) -> str:
    """What the app has painted once it shows the words."""
    seen = b""
    async with client.ws_connect(path) as page:
        while words not in (text := seen.decode(errors="replace")):
            message = await asyncio.wait_for(page.receive(), PATIENCE_S)
            assert message.type in (WSMsgType.BINARY, WSMsgType.TEXT), text
            seen += message.data if message.type == WSMsgType.BINARY else b""
    return text


async def test_without_the_token_there_is_nothing(address: str) -> None:
    async with ClientSession(address.rsplit("/", 2)[0] + "/") as client:
        for path in ("/", "/ws", "/static/js/textual.js", "/guess/", "/guess/ws"):
            answer, _ = await get(client, path)
            assert answer.status == 403, path
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect("/ws")
        assert refused.value.status == 403


async def test_the_page_takes_all_from_where_it_came_from(address: str) -> None:
    async with ClientSession() as client:
        answer, page = await get(client, address)
        assert answer.status == 200 and "default-src 'self'" in answer.headers["Content-Security-Policy"]
        home = str(answer.url.origin())
        links = re.findall(r"""(?:src|href|url)=?\(?["']([^"']+)""", page)
        assert any("/ws" in link for link in links)
        for link in (urljoin(address, link) for link in links):
            assert link.startswith((home, home.replace("http", "ws"), "data:")), link
            if link.startswith(home):
                assert (await get(client, link))[0].status == 200, link


async def test_the_socket_gives_the_first_frame(address: str) -> None:
    async with ClientSession() as client:
        frame = await first_frame(client, f"{address}ws?width=90&height=30", "no jobs")
        assert "start one with" in frame


def test_what_is_no_address_is_refused(tmp_path: Path) -> None:
    dlaunch = Dlaunch(tmp_path / "home", tmp_path)
    done = dlaunch.run("top", "--serve", "here")
    assert done.returncode == 2 and "--serve: 'here' is not [HOST:]PORT" in done.stderr


@pytest.mark.lab
async def test_a_browser_paints_it_and_keys_reach_it(address: str, browser_ready: None) -> None:
    async with Browser() as browser:
        await browser.open(address)
        await browser.wait_for("document.body.classList.contains('-first-byte')")
        await browser.press("q")
        await browser.wait_for("document.body.classList.contains('-closed')")
        assert browser.complaints == []
