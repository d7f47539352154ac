"""What browsers may load and run on our pages: nothing but our own, and no script within a page.

The admin's theme needs two exceptions, and gets them below `/admin` only: its Alpine evaluates the
expressions in attributes (`unsafe-eval`), and it styles pages from within (`unsafe-inline`, of
styles alone).
"""

from __future__ import annotations

from csp.constants import NONCE, NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

ADMIN_PATH = "/admin/"

_COMMON = {
    "default-src": [NONE],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
    "img-src": [SELF, "data:"],
}
STRICT = _COMMON | {"style-src": [NONCE], "form-action": [NONE]}
ADMIN = _COMMON | {
    "script-src": [SELF, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
    "font-src": [SELF],
    "connect-src": [SELF],
    "form-action": [SELF],
}


class ContentPolicyMiddleware(CSPMiddleware):  # type: ignore[misc]
    """Sends the policy that a page's address asks for."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        """Return the admin's policy or the strict one; nothing is only reported."""
        parts = super().get_policy_parts(request, response, report_only)
        if not report_only:
            parts.config = ADMIN if request.path_info.startswith(ADMIN_PATH) else STRICT
        return parts
