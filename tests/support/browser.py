"""A real headless Chromium, driven over its DevTools protocol: open a page, ask it, hear what it complains of."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

PROGRAM = "chromium-headless-shell"
PATIENCE_S = 60.0


class Browser:
    """One page of a browser of its own. `complaints` holds its script errors, refused resources and the like."""

    def __init__(self) -> None:
        self.complaints: list[Any] = []
        self._numbers = itertools.count(1)
        self._profile = tempfile.TemporaryDirectory(prefix="dlaunch-browser-", ignore_cleanup_errors=True)

    async def __aenter__(self) -> Browser:
        argv = [PROGRAM, "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank"]
        self._process = await asyncio.create_subprocess_exec(
            *argv,
            f"--user-data-dir={self._profile.name}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = ClientSession()
        self._page = await asyncio.wait_for(self._connect(), PATIENCE_S)
        for domain in ("Runtime", "Log", "Page"):
            await self._do(f"{domain}.enable")
        await self._do("Emulation.setFocusEmulationEnabled", enabled=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._session.close()
        os.killpg(self._process.pid, signal.SIGTERM)  # the program is a shell's child, and has many of its own
        await asyncio.wait_for(self._process.wait(), PATIENCE_S)
        self._profile.cleanup()

    async def open(self, address: str) -> None:
        await self._do("Page.navigate", url=address)
        await self.wait_for("location.href != 'about:blank' && document.readyState == 'complete'")

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        answer = await self._do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def wait_for(self, expression: str) -> None:
        """Wait until the expression is true."""

        async def is_true() -> None:
            while not await self.value(expression):
                await asyncio.sleep(0.05)

        await asyncio.wait_for(is_true(), PATIENCE_S)

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            await self._do("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    async def picture(self, path: Path) -> None:
        """Write what the page looks like to a PNG file."""
        answer = await self._do("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def _connect(self) -> ClientWebSocketResponse:
        chosen = Path(self._profile.name) / "DevToolsActivePort"
        while not (chosen.exists() and chosen.read_text().count("\n")):
            await asyncio.sleep(0.05)
        port = chosen.read_text().splitlines()[0]
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (page,) = [target for target in await answer.json() if target["type"] == "page"]
        return await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)

    def _hear(self, message: Any) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(message["params"]["exceptionDetails"])
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"])

    async def _do(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._page.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._page.receive_json(timeout=PATIENCE_S)
            self._hear(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
