from dataclasses import replace

from corral.api.request import Request, User

COMPONENT = User(name="system:kube-scheduler", groups=("system:masters",))


def test_a_request_with_a_component_is_in_process():
    assert Request(method="GET", path="/api", user=COMPONENT).is_in_process
    assert not Request(method="GET", path="/api").is_in_process


def test_only_the_sending_component_itself_is_the_component():
    request = Request(method="GET", path="/api", user=COMPONENT)
    namesake = replace(COMPONENT)
    assert request.is_component(COMPONENT)
    assert namesake == COMPONENT
    assert not request.is_component(namesake)


def test_no_user_of_a_request_from_outside_is_a_component():
    assert not Request(method="GET", path="/api").is_component(COMPONENT)
