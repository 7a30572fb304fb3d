"""Numbers of the fields of webhooks' configurations and of policies (see ``numbers``)."""

from collections.abc import Mapping

_OBJECT = "metadata=1 spec=2 status=3"
_RULE = "apiGroups=1 apiVersions=2 resources=3 scope=4"

REVIEW_NUMBERS: Mapping[str, str] = {
    "admissionregistration_v1.MutatingWebhookConfiguration": "metadata=1 webhooks=2",
    "admissionregistration_v1.MutatingWebhook": (
        "name=1 clientConfig=2 rules=3 failurePolicy=4* namespaceSelector=5 sideEffects=6* "
        "timeoutSeconds=7* admissionReviewVersions=8 matchPolicy=9* reinvocationPolicy=10* "
        "objectSelector=11 matchConditions=12"
    ),
    "admissionregistration_v1.ValidatingWebhookConfiguration": "metadata=1 webhooks=2",
    "admissionregistration_v1.ValidatingWebhook": (
        "name=1 clientConfig=2 rules=3 failurePolicy=4* namespaceSelector=5 sideEffects=6* "
        "timeoutSeconds=7* admissionReviewVersions=8 matchPolicy=9* objectSelector=10 "
        "matchConditions=11"
    ),
    "admissionregistration_v1.WebhookClientConfig": "service=1 caBundle=2! url=3*",
    "admissionregistration_v1.ServiceReference": "namespace=1 name=2 path=3* port=4*",
    "admissionregistration_v1.RuleWithOperations": "operations=1 +admissionregistration_v1.Rule=2",
    "admissionregistration_v1.Rule": _RULE,
    "admissionregistration_v1.NamedRuleWithOperations": (
        "resourceNames=1 +admissionregistration_v1.RuleWithOperations=2"
    ),
    "admissionregistration_v1.MatchCondition": "name=1 expression=2",
    "admissionregistration_v1.ValidatingAdmissionPolicy": _OBJECT,
    "admissionregistration_v1.ValidatingAdmissionPolicySpec": (
        "paramKind=1 matchConstraints=2 validations=3 failurePolicy=4* auditAnnotations=5 "
        "matchConditions=6 variables=7"
    ),
    "admissionregistration_v1.ValidatingAdmissionPolicyStatus": (
        "observedGeneration=1 typeChecking=2 conditions=3"
    ),
    "admissionregistration_v1.TypeChecking": "expressionWarnings=1",
    "admissionregistration_v1.ExpressionWarning": "fieldRef=2 warning=3",
    "admissionregistration_v1.ValidatingAdmissionPolicyBinding": "metadata=1 spec=2",
    "admissionregistration_v1.ValidatingAdmissionPolicyBindingSpec": (
        "policyName=1 paramRef=2 matchResources=3 validationActions=4"
    ),
    "admissionregistration_v1.ParamKind": "apiVersion=1 kind=2",
    "admissionregistration_v1.ParamRef": "name=1 namespace=2 selector=3 parameterNotFoundAction=4*",
    "admissionregistration_v1.MatchResources": (
        "namespaceSelector=1 objectSelector=2 resourceRules=3 excludeResourceRules=4 matchPolicy=7*"
    ),
    "admissionregistration_v1.Validation": ("expression=1 message=2 reason=3* messageExpression=4"),
    "admissionregistration_v1.Variable": "name=1 expression=2",
    "admissionregistration_v1.AuditAnnotation": "key=1 valueExpression=2",
}
