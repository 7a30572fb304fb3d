"""A server of this process is called as the user of the component that calls it."""

from corral.api.request import Request, Response, User
from corral.client.transport import InProcess


async def test_a_request_in_process_is_sent_as_the_components_user():
    sent = []

    async def handle(request: Request) -> Response:
        sent.append(request)
        return Response(body=b"{}")

    user = User(name="system:serviceaccount:kubevirt:kubevirt-controller")
    response = await InProcess(handle, user).send(Request(method="GET", path="/api"))
    assert response.body == b"{}"
    assert [(each.path, each.user) for each in sent] == [("/api", user)]
