import hashlib
import ssl

import pytest
import trustme

from corral.api.errors import Unauthorized
from corral.api.request import Certificate, Request
from corral.server.extension.front_proxy import FrontProxy

CA = trustme.CA()
DER = ssl.PEM_cert_to_DER_cert(CA.cert_pem.bytes().decode())
FINGERPRINT = hashlib.sha256(DER).hexdigest()
DATA = {
    "requestheader-client-ca-file": CA.cert_pem.bytes().decode(),
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def proxied(name="front-proxy-client", ends=1e12, by=FINGERPRINT, **headers):
    certificate = Certificate(name=name, begins=0, ends=ends, fingerprint="", authorities=(by,))
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Request(method="GET", path="/apis", certificate=certificate, headers=named)


def test_the_user_of_the_headers():
    request = proxied(
        x_remote_user="jane",
        x_remote_uid="7",
        x_remote_group="a,b\nc",
        **{"x-remote-extra-example.com%2fscopes": "read\nwrite"},
    )
    user = FrontProxy.of(DATA).authenticate(request)
    assert (user.name, user.uid, user.groups) == ("jane", "7", ("a,b", "c"))
    assert user.extra == {"example.com/scopes": ("read", "write")}


@pytest.mark.parametrize(
    "request_",
    [
        Request(method="GET", path="/apis", headers={"x-remote-user": "jane"}),
        proxied(name="mallory", x_remote_user="jane"),
        proxied(ends=1, x_remote_user="jane"),
        proxied(by="of an authority that was trusted before", x_remote_user="jane"),
        proxied(x_remote_group="system:masters"),
    ],
    ids=["no certificate", "another name", "expired", "another authority", "no user"],
)
def test_headers_of_others_are_not_believed(request_):
    with pytest.raises(Unauthorized):
        FrontProxy.of(DATA).authenticate(request_)


def test_any_name_will_do_where_none_is_configured():
    proxies = FrontProxy.of(DATA | {"requestheader-allowed-names": "[]"})
    assert proxies.authenticate(proxied(name="x", x_remote_user="jane")).name == "jane"


def test_without_a_front_proxy_nobody_is_believed():
    with pytest.raises(Unauthorized):
        FrontProxy().authenticate(proxied(x_remote_user="jane"))


def test_a_damaged_configuration_names_the_key():
    with pytest.raises(ValueError, match="requestheader-allowed-names is no list of strings"):
        FrontProxy.of(DATA | {"requestheader-allowed-names": "front"})
