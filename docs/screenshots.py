"""Make the pictures of the README from what `make demo` leaves.

python docs/screenshots.py runs/demo
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
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
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
