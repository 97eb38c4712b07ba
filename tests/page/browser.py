"""Drives headless Chromium through its debugging pipe: real keys and wheels, pictures, pages for print. Standard library
only.

    browser.py PAGE OUT.png [--width 1280] [--height 900] [--dark] [--scale 1] [--eval JAVASCRIPT] [--clip CSS] [--pdf]
"""
import argparse
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --disable-default-apps --hide-scrollbars "
         "--remote-debugging-pipe").split()
# All of the page is there, its timeline too if it has one.
READY = ("document.documentElement.dataset.ready === 'true' && (typeof timelineData === 'undefined' || "
         "timelineData === null || document.documentElement.dataset.timeline === 'ready')")
MODIFIER = {"Shift": 8, "Control": 2}


class Browser:
    """A page in a browser of its own. `requests` holds the addresses it asked for, `errors` what it complained of."""

    def __init__(self, width=1280, height=900, scale=1, dark=False, prefix=(), timeout=120):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.timeout, self.number, self.buffer = timeout, 0, b""
        self.requests, self.errors = [], []
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        shell = ["sh", "-c", f'exec 3<&{to_read} 4>&{back_write}; exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*prefix, *shell, CHROMIUM, *FLAGS, f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"],
            pass_fds=(to_read, back_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait(timeout=30)
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.to, text):]
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self):
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], self.timeout)[0]:
                raise RuntimeError(f"the browser did not answer in {self.timeout} s")
            part = os.read(self.back, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event, what):
        if event == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(what["exceptionDetails"].get("exception", {}).get("description", str(what)))
        elif event == "Runtime.consoleAPICalled":
            self.errors.append(" ".join(str(each.get("value")) for each in what["args"]))
        elif event == "Log.entryAdded" and what["entry"]["level"] == "error":  # not advice on speed
            self.errors.append(what["entry"]["text"])

    def open(self, page, until=READY):
        """Loads a file and waits until the expression holds; the seconds that took."""
        begin = time.monotonic()
        self.call("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
        while not self.value(f"document.readyState === 'complete' && ({until})"):
            if time.monotonic() - begin > self.timeout:
                raise RuntimeError(f"{page}: not '{until}' after {self.timeout} s; {self.errors}")
        return time.monotonic() - begin

    def value(self, expression):
        """Of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression[:200]}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def frame(self):
        """Lets the page draw what it has been asked to draw."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, key, modifier=None):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                "ArrowDown": 40}.get(key, 0)
        common = {"key": key, "modifiers": MODIFIER.get(modifier, 0), "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def picture(self, path, clip=None):
        """Of the window, or of the element that the selector names."""
        parameters = {"format": "png"}
        if clip:
            box = self.value(f"(() => {{ const b = document.querySelector({json.dumps(clip)}).getBoundingClientRect(); "
                             "return [b.x + scrollX, b.y + scrollY, b.width, b.height]; })()")
            parameters.update(clip=dict(zip(("x", "y", "width", "height"), box), scale=1), captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"]))

    def pdf(self, path):
        data = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--eval", default="0")
    parser.add_argument("--clip")
    parser.add_argument("--pdf", action="store_true")
    options = parser.parse_args()
    with Browser(options.width, options.height, options.scale, options.dark) as browser:
        browser.open(options.page)
        print(browser.value(options.eval))
        browser.frame()
        if options.pdf:
            browser.pdf(options.out)
        else:
            browser.picture(options.out, options.clip)
        for error in browser.errors:
            print("error:", error)


if __name__ == "__main__":
    main()
