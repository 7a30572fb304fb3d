"""How a machine is asked whether it is alive and ready."""

from lightkube.models.core_v1 import ExecAction, HTTPGetAction, TCPSocketAction

from corral.api.object import Struct


class GuestAgentPing(Struct, kw_only=True):
    """Ask the guest agent whether it answers."""


class Probe(Struct, kw_only=True):
    """A question that is asked again and again: exactly one way, and when.

    exec: a command that the guest agent runs in the guest; exit code 0 is success.
    guest_agent_ping: the guest agent answers.
    http_get: an HTTP request that is answered with 200 to 399.
    tcp_socket: a TCP port that can be opened.
    initial_delay_seconds: seconds from start to the first question.
    timeout_seconds: seconds that an answer may take, 1 unless said otherwise.
    period_seconds: seconds between two questions, 10 unless said otherwise.
    success_threshold: successes in a row that turn the verdict to good, 1 unless said otherwise.
    failure_threshold: failures in a row that turn the verdict to bad, 3 unless said otherwise.
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
