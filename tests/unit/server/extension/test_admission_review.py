import base64
import json

import pytest
from hypothesis import given, strategies as st

from corral.api.errors import BadRequest, Cause, Details, Invalid
from corral.api.patch.json import json_patch
from corral.server.extension import admission_review
from corral.server.extension.admission_review import difference

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@given(DOCUMENTS, DOCUMENTS)
def test_the_difference_makes_the_one_into_the_other(old, new):
    patched = json_patch(json.loads(json.dumps(old)), list(difference(old, new)))
    assert patched == new


def test_members_with_slashes_and_tildes_are_escaped():
    old, new = {"a/b": {"~c": 1}}, {"a/b": {"~c": 2}}
    assert list(difference(old, new)) == [{"op": "replace", "path": "/a~1b/~0c", "value": 2}]


def test_equal_documents_have_no_patch():
    assert "patch" not in json.loads(admission_review.allowed("1", []))["response"]


def test_a_patch_is_json_in_base64():
    patch = [{"op": "add", "path": "/a", "value": 1}]
    response = json.loads(admission_review.allowed("1", patch, ["careful"]))["response"]
    assert json.loads(base64.b64decode(response["patch"])) == patch
    assert (response["uid"], response["patchType"]) == ("1", "JSONPatch")
    assert response["warnings"] == ["careful"]


def test_a_denial_leaves_the_prefix_to_the_api_server():
    causes = (Cause("spec.domain", "wrong"),)
    error = Invalid(
        'admission webhook "a.b" denied the request: wrong', details=Details(causes=causes)
    )
    review = json.loads(admission_review.denied("1", error))
    status = review["response"]["status"]
    assert review["kind"] == "AdmissionReview"
    assert (status["message"], status["code"], status["reason"]) == ("wrong", 422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.domain"


def test_other_messages_stay_as_they_are():
    error = BadRequest('volume "a" denied the request: of a guest')
    status = json.loads(admission_review.denied("1", error))["response"]["status"]
    assert status["message"] == error.message


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "no AdmissionReview"),
        (b'{"apiVersion": "v1", "kind": "Pod"}', "request"),
        (
            (
                b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview",'
                b' "request": {"uid": "1", "kind": {}, "operation": "CREATE"}}'
            ),
            "send AdmissionReview of admission.k8s.io/v1",
        ),
        (
            (
                b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",'
                b' "request": {"uid": "1", "kind": {}, "operation": "EAT"}}'
            ),
            "operation",
        ),
    ],
)
def test_other_bodies_are_refused(body, fault):
    with pytest.raises(BadRequest, match=fault):
        admission_review.decode(body)
