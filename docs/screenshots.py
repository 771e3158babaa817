"""Makes the README's pictures from a run folder and a recorded terminal.

script -qec "make demo" demo.typescript
python docs/screenshots.py runs/demo demo.typescript
"""

import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
LAST_LINES = 22
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PAGE = """<body style="margin:0;background:#16181d;padding:18px 22px">
<pre style="color:#d6d9e0;font:14px/1.45 'DejaVu Sans Mono',monospace;margin:0;
white-space:pre-wrap">%s</pre>"""


def last_screen(typescript: str) -> str:
    """What stands on the terminal at the end, without the lines that were redrawn."""
    text = re.sub(r"[^\n]*\x1b\[1A\x1b\[2K", "", typescript)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    shown = [line for line in lines if line and not line.startswith("Script done")]
    return "\n".join(shown[-LAST_LINES:])


def main() -> None:
    run, typescript = Path(sys.argv[1]), Path(sys.argv[2])
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hvdtune", "timeline", "view", str(run), "--no-browser"]
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory() as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        browser = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which("chromium"),
            args=CHROMIUM,
            viewport={"width": 1280, "height": 900},
        )
        page = browser.new_page()
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None
        page.goto(address[0])
        page.wait_for_selector(".js-plotly-plot .bars, .js-plotly-plot .trace")
        page.wait_for_timeout(3000)
        page.screenshot(path=IMAGES / "dashboard.png")
        page.set_viewport_size({"width": 1000, "height": 400})
        text = last_screen(typescript.read_text(errors="replace"))
        page.set_content(PAGE % html.escape(text))
        page.screenshot(path=IMAGES / "terminal.png", full_page=True)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
