"""One JupyterLab on 127.0.0.1 with a home of its own, and one headless chromium."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
]
START_SECONDS = 60
READY = "Python 3 (ipykernel) | Idle"  # the status bar; the execution indicator says so too early


class Lab:
    """A running server. `folder` is its root: notebooks are opened from there."""

    def __init__(self, folder: Path, port: int, token: str) -> None:
        self.folder, self.base, self.token = folder, f"http://127.0.0.1:{port}", token

    def write(self, name: str, cells: list[str]) -> None:
        """A notebook of code cells."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        notebook.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
        }
        nbformat.write(notebook, self.folder / name)

    def address(self, name: str) -> str:
        """A notebook in a workspace of its own."""
        return f"{self.base}/lab/workspaces/w{secrets.token_hex(4)}/tree/{name}?token={self.token}"

    def open(self, page: Page, name: str) -> None:
        """Open a notebook and wait until its kernel can run cells."""
        page.goto(self.address(name))
        page.locator("#jp-main-statusbar").filter(has_text=READY).wait_for(timeout=60_000)
        page.evaluate("jupyterapp.shell.collapseLeft()")

    def command(self, page: Page, name: str) -> None:
        page.evaluate("name => jupyterapp.commands.execute(name)", name)

    def run_all(self, page: Page) -> None:
        self.command(page, "notebook:run-all-cells")

    def run_all_and_wait(self, page: Page) -> None:
        """Run every cell; the command's promise ends with the last of them."""
        page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")


class Watch:
    """What a page must never do: leave 127.0.0.1, report an error, open a dialog."""

    def __init__(self, page: Page) -> None:
        self.page, self.wrong, self.sent = page, [], []
        page.on("request", self._request)
        page.on("console", lambda m: self._note(m.type == "error", f"console: {m.text}"))
        page.on("pageerror", lambda error: self._note(True, f"page error: {error}"))
        page.on("dialog", self._dialog)
        page.on("websocket", lambda socket: socket.on("framesent", self._frame))

    def _note(self, is_wrong: bool, text: str) -> None:
        if is_wrong:
            self.wrong.append(text)

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        local = url.scheme in ("blob", "data", "file", "about") or url.hostname == "127.0.0.1"
        self._note(not local, f"request to {request.url}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _frame(self, payload: str | bytes) -> None:
        text = payload if isinstance(payload, str) else payload.decode("utf-8", "replace")
        self.sent += ["comm_msg"] if "comm_msg" in text else []


def environment(home: Path) -> dict[str, str]:
    """The server's environment: nothing of the user's settings, this clone first."""
    folders = {
        "HOME": home,
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "IPYTHONDIR": home / "ipython",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    settings = {name: str(folder) for name, folder in folders.items()}
    return {**os.environ, **settings, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _configure(home: Path, theme: str) -> None:
    """No announcements (they would ask the network), and the wished theme. That widget state is
    saved comes with the package (kvlab/widgets/lab_overrides.json)."""
    disabled = {"@jupyterlab/apputils-extension:announcements": True}
    labconfig = home / "config" / "labconfig"
    labconfig.mkdir(parents=True, exist_ok=True)
    (labconfig / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
    themes = home / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    themes.parent.mkdir(parents=True, exist_ok=True)
    themes.write_text(json.dumps({"theme": theme}))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def running_lab(base: Path, theme: str = "JupyterLab Light") -> Iterator[Lab]:
    """A server that is stopped on every way out, with its kernels."""
    home, folder = base / "home", base / "work"
    folder.mkdir(parents=True, exist_ok=True)
    settings = environment(home)
    _configure(home, theme)
    port, token = _free_port(), secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"),
        *(
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ),
    ]
    with (base / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=settings, cwd=folder, stdout=log, stderr=log)
        try:
            lab = Lab(folder, port, token)
            _wait_until_up(lab, server, base / "lab.log")
            yield lab
        finally:
            server.terminate()  # the server ends its kernels before it goes
            try:
                server.wait(timeout=15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_up(lab: Lab, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{lab.base}/api/status?token={lab.token}", timeout=2):
                return
        except OSError:
            time.sleep(0.2)  # polling a socket, not waiting for a page
    raise RuntimeError(
        f"JupyterLab did not start; its log ends:\n{log.read_text(errors='replace')[-2000:]}"
    )


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
