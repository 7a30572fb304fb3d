"""Readiness and liveness probes of a VMI."""

from lightkube.models.core_v1 import ExecAction, HTTPGetAction, TCPSocketAction

from corral.api.object import Struct


class GuestAgentPing(Struct, kw_only=True):
    """A ping of the guest agent."""


class Probe(Struct, kw_only=True):
    """A periodic check of the guest: exactly one action, and its timing.

    exec: a command that the guest agent runs in the guest; exit code 0 is success.
    guest_agent_ping: the guest agent answers.
    http_get: an HTTP request that is answered with 200 to 399.
    tcp_socket: a TCP port that can be opened.
    initial_delay_seconds: seconds from start to the first check.
    timeout_seconds: seconds after which a check fails, 1 by default.
    period_seconds: seconds between two checks, 10 by default.
    success_threshold: successes in a row after which the probe succeeds, 1 by default.
    failure_threshold: failures in a row after which the probe fails, 3 by default.
    """

    exec: ExecAction | None = None
    guest_agent_ping: GuestAgentPing | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 0
    period_seconds: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
