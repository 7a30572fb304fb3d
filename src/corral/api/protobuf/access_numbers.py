"""Numbers of the fields of what access is about (see ``numbers``).

Roles, bindings, questions about rights, and requests for certificates.
"""

from collections.abc import Mapping

_QUESTION = "metadata=1 spec=2 status=3"
_BINDING = "metadata=1 subjects=2 roleRef=3"
_SELECTOR = "rawSelector=1 requirements=2"

ACCESS_NUMBERS: Mapping[str, str] = {
    "rbac_v1.Role": "metadata=1 rules=2",
    "rbac_v1.ClusterRole": "metadata=1 rules=2 aggregationRule=3",
    "rbac_v1.AggregationRule": "clusterRoleSelectors=1",
    "rbac_v1.PolicyRule": "verbs=1 apiGroups=2 resources=3 resourceNames=4 nonResourceURLs=5",
    "rbac_v1.RoleBinding": _BINDING,
    "rbac_v1.ClusterRoleBinding": _BINDING,
    "rbac_v1.RoleRef": "apiGroup=1 kind=2 name=3",
    "rbac_v1.Subject": "kind=1 apiGroup=2 name=3 namespace=4",
    "authorization_v1.SelfSubjectAccessReview": _QUESTION,
    "authorization_v1.SelfSubjectAccessReviewSpec": "resourceAttributes=1 nonResourceAttributes=2",
    "authorization_v1.SubjectAccessReview": _QUESTION,
    "authorization_v1.LocalSubjectAccessReview": _QUESTION,
    "authorization_v1.SubjectAccessReviewSpec": (
        "resourceAttributes=1 nonResourceAttributes=2 user=3 groups=4 extra=5@ uid=6"
    ),
    "authorization_v1.SubjectAccessReviewStatus": "allowed=1 reason=2 evaluationError=3 denied=4",
    "authorization_v1.ResourceAttributes": (
        "namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7 fieldSelector=8 "
        "labelSelector=9"
    ),
    "authorization_v1.FieldSelectorAttributes": _SELECTOR,
    "authorization_v1.LabelSelectorAttributes": _SELECTOR,
    "meta_v1.FieldSelectorRequirement": "key=1 operator=2 values=3",
    "authorization_v1.NonResourceAttributes": "path=1 verb=2",
    "authorization_v1.SelfSubjectRulesReview": _QUESTION,
    "authorization_v1.SelfSubjectRulesReviewSpec": "namespace=1",
    "authorization_v1.SubjectRulesReviewStatus": (
        "resourceRules=1 nonResourceRules=2 incomplete=3 evaluationError=4"
    ),
    "authorization_v1.ResourceRule": "verbs=1 apiGroups=2 resources=3 resourceNames=4",
    "authorization_v1.NonResourceRule": "verbs=1 nonResourceURLs=2",
    "certificates_v1.CertificateSigningRequest": "metadata=1 spec=2 status=3",
    "certificates_v1.CertificateSigningRequestSpec": (
        "request=1! username=2 uid=3 groups=4 usages=5 extra=6@ signerName=7 expirationSeconds=8*"
    ),
    "certificates_v1.CertificateSigningRequestStatus": "conditions=1 certificate=2!",
    "certificates_v1.CertificateSigningRequestCondition": (
        "type=1 reason=2 message=3 lastUpdateTime=4 lastTransitionTime=5 status=6"
    ),
}
