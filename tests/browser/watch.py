"""What no page may do while it is open: fail, complain, break its policy, ask another host."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Request, WebError

# The console has violations, too, but not those of a policy that only reports.
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => console.error(
    `policy violated: ${event.effectiveDirective} forbids ${event.blockedURI || "inline"}`
    + ` at ${event.sourceFile}:${event.lineNumber} ${event.sample}`))
"""
_OWN_SCHEMES = ("data", "blob")


class Watch:
    """Notes the faults of every page of a browser profile."""

    def __init__(self, context: BrowserContext, own_url: str) -> None:
        self._own_host = urlsplit(own_url).netloc
        self._faults: list[str] = []
        self._expected: list[str] = []
        context.add_init_script(_TELL_VIOLATIONS)
        context.on("console", self._read_console)
        context.on("weberror", self._note_exception)
        context.on("request", self._check_host)

    def expect(self, text: str) -> None:
        """Let pass what a test provokes: faults that contain this text."""
        self._expected.append(text)

    def check(self) -> None:
        """Fail if anything else has been noted since the last check."""
        noted, self._faults = self._faults, []
        unexpected = [fault for fault in noted if not any(text in fault for text in self._expected)]
        assert not unexpected, "\n".join(unexpected)

    def _read_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._faults.append(f"{message.text} ({message.location['url']})")

    def _note_exception(self, error: WebError) -> None:
        self._faults.append(f"uncaught: {error.error}")

    def _check_host(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in _OWN_SCHEMES and url.netloc != self._own_host:
            self._faults.append(f"another host was asked: {request.url}")
