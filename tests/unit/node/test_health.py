"""The reports of a part that has a problem."""

from structlog.testing import capture_logs

from corral.node.health import Health


def test_a_problem_is_reported_when_it_begins_changes_and_ends():
    problems = []
    health = Health("DNS", lambda: problems.append(health.problem))
    with capture_logs() as logged:
        for problem in ("", "no server", "no server", "no socket", "", ""):
            health.report(problem)
    assert problems == ["no server", "no socket", ""]
    assert [(one["log_level"], one.get("problem")) for one in logged] == [
        ("warning", "no server"),
        ("warning", "no socket"),
        ("info", None),
    ]
