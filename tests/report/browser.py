"""A headless Chromium, driven through chromedriver's own protocol (W3C WebDriver): no further package is needed."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1600",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# The machine's proxy is no business of a browser on this machine.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
KEYS = {"ArrowDown": "\ue015", "ArrowUp": "\ue013", "End": "\ue010", "Tab": "\ue004", "Space": " ", "Enter": "\ue007"}


def missing_browser() -> str | None:
    """Why no browser can be driven here; None where one can."""
    if not any(shutil.which(name) for name in BROWSERS):
        return "no Chromium here: apt-get install chromium chromium-driver"
    return None if shutil.which("chromedriver") else "no chromedriver here: apt-get install chromium-driver"


@dataclass(frozen=True)
class Browser:
    """One open window."""

    address: str

    def call(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with DIRECT.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def open(self, path: Path) -> None:
        self.call("/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 60) -> Any:
        """The script's value as soon as it is true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"still not true: {script}"
            time.sleep(0.05)
        return found

    def element(self, selector: str) -> str:
        return str(self.call("/element", {"using": "css selector", "value": selector})[ELEMENT])

    def click(self, selector: str) -> None:
        """Click as a mouse does, where the element is."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", selector)
        self.call(f"/element/{self.element(selector)}/click", {})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": KEYS[key]} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def log(self) -> list[str]:
        """What stands in the console: errors, warnings, violations of the page's policy."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.call("/se/log", {"type": "browser"})]

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("/screenshot"))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A fresh browser with its profile in `folder`; it and its driver are ended afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binary = next(path for name in BROWSERS if (path := shutil.which(name)))
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    root = f"http://127.0.0.1:{port}"
    try:
        _wait_for(root)
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": binary, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = Browser(root).call("/session", {"capabilities": {"alwaysMatch": wanted}})
        window = Browser(f"{root}/session/{made['sessionId']}")
        try:
            yield window
        finally:
            window.call("", method="DELETE")
    finally:
        driver.terminate()
        driver.wait(10)


def _wait_for(root: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if Browser(root).call("/status")["ready"]:
                return
        except (OSError, AssertionError):
            assert time.monotonic() < end, "chromedriver does not answer"
        time.sleep(0.05)
