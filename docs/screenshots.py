"""Makes the README's pictures from a run folder and, if there is one, a recorded terminal.

script -qec "make demo" demo.typescript
python docs/screenshots.py runs/demo demo.typescript
"""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
LAST_LINES = 22
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Three steps in the middle of the trace, as the address has them.
_WINDOW = """() => fetch('/tile?run=0&px=800&from=0&to=' + 1e15)
  .then(answer => answer.arrayBuffer()).then(buffer => {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const at = head.steps.map(step => step[0]), middle = Math.floor(at.length / 2);
    const number = index => Number(head.steps[index][1].split(' ')[1]), last = at.length - 1;
    const step = (at[last] - at[0]) / (number(last) - number(0));
    return `from=${at[middle]}&to=${Math.round(at[middle] + 3 * step)}`;
  })"""
PAGE = """<body style="margin:0;background:#16181d;padding:18px 22px">
<pre style="color:#d6d9e0;font:14px/1.45 'DejaVu Sans Mono',monospace;margin:0;
white-space:pre-wrap">%s</pre>"""


def last_screen(typescript: str) -> str:
    """Return the last lines that a terminal shows, without those that were redrawn."""
    text = re.sub(r"[^\n]*\x1b\[1A\x1b\[2K", "", typescript)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    shown = [line for line in lines if line and not line.startswith("Script done")]
    return "\n".join(shown[-LAST_LINES:])


def picture_pages(page: Page, link: str) -> None:
    """The overview, some steps in the timeline, and the study."""
    origin = link.split("/?")[0]
    page.goto(link)
    page.wait_for_selector(".js-plotly-plot .bars")
    page.wait_for_timeout(2000)
    page.screenshot(path=IMAGES / "overview.png")
    page.goto(f"{origin}/timeline")
    page.wait_for_selector("#swimlane[data-tiles]")
    found = page.evaluate(_WINDOW)
    page.goto(f"{origin}/timeline?run=0&{found}")
    page.wait_for_selector("#swimlane[data-tiles]")
    page.locator("#swimlane").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_timeout(1000)
    page.screenshot(path=IMAGES / "timeline.png")
    page.goto(f"{origin}/study")
    page.wait_for_selector(".js-plotly-plot .scatterlayer")
    page.wait_for_timeout(2000)
    page.screenshot(path=IMAGES / "study.png")


def picture_terminal(page: Page, typescript: Path) -> None:
    """The last lines of a recorded terminal."""
    page.set_viewport_size({"width": 1000, "height": 400})
    text = last_screen(typescript.read_text(errors="replace"))
    page.set_content(PAGE % html.escape(text))
    page.screenshot(path=IMAGES / "terminal.png", full_page=True)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hvdtune", "dashboard", sys.argv[1], "--no-browser"]
    with (
        sync_playwright() as playwright,
        subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server,
    ):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=CHROMIUM
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None
        picture_pages(page, address[0])
        if len(sys.argv) > 2:
            picture_terminal(page, Path(sys.argv[2]))
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
