"""Health of the server: ``/healthz``, ``/livez``, ``/readyz`` and their checks.

Each check has a path (``/readyz/store``).  ``?verbose`` lists all checks, ``?exclude=store`` skips
one.  Faults of the audit log (``/readyz/audit``) and damaged objects (``/readyz/objects``) have a
path only: the server is ready in spite of them.
"""

from typing import Final

from corral.api.request import Request, Response, User
from corral.server.authn.authenticator import ADMINISTRATORS
from corral.server.request import query
from corral.server.response.plain_text import not_found, text_response
from corral.store import Store
from corral.store.damage import describe_damage

ROOTS: Final = ("healthz", "livez", "readyz")
_CHECKS: Final = ("ping", "store")
AUDIT: Final = "audit"
OBJECTS: Final = "objects"
PATHS: Final = tuple(
    f"/{root}{single}"
    for root in ROOTS
    for single in ("", *(f"/{each}" for each in (*_CHECKS, AUDIT, OBJECTS)))
)
"""All paths that are served."""


def answer(
    path: str, request: Request, user: User, store: Store, *, audit_fault: str = ""
) -> Response:
    """Return the response for a path below one of ``ROOTS``.

    The server is alive if it responds, and ready if it can write to disk.  The reason of a fault
    names files, so only administrators see it.
    """
    root, _, single = path.strip("/").partition("/")
    faults = {"store": store.error_message if root == "readyz" else ""}
    if single == AUDIT:
        return _one(audit_fault, user)
    if single == OBJECTS:
        return _one(damage(store), user)
    if single:
        return _one(faults.get(single, ""), user) if single in _CHECKS else not_found()
    parameters = query.pairs(request.query)
    excluded = [value for name, value in parameters if name == "exclude"]
    lines, failed = [], False
    for check in _CHECKS:
        fault = faults.get(check, "")
        if check in excluded:
            lines.append(f"[+]{check} excluded: ok")
        elif fault:
            failed = True
            lines.append(f"[-]{check} failed: {_shown(fault, user)}")
        else:
            lines.append(f"[+]{check} ok")
    if unknown := [f'"{name[:50]}"' for name in excluded[:10] if name not in _CHECKS]:
        unmatched = ", ".join(unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {unmatched}")
    if not failed and not any(name == "verbose" for name, _ in parameters):
        return text_response("ok")
    lines.append(f"{root} check {'failed' if failed else 'passed'}\n")
    return text_response("\n".join(lines), status=500 if failed else 200)


def damage(store: Store) -> str:
    """Return a message about damaged objects; empty if there are none."""
    return describe_damage([*store.damaged])


def _one(fault: str, user: User) -> Response:
    if not fault:
        return text_response("ok")
    return text_response(f"internal server error: {_shown(fault, user)}\n", status=500)


def _shown(fault: str, user: User) -> str:
    return fault if ADMINISTRATORS in user.groups else "reason withheld"
