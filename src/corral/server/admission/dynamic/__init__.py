"""Dynamic admission: webhooks and ValidatingAdmissionPolicies.

``matching`` evaluates rules and selectors, ``admission_review`` encodes and decodes
AdmissionReviews, ``policy_evaluation`` evaluates a policy; these are pure.  ``webhooks`` calls
webhooks, ``validating_policies`` applies policies with their bindings, and ``dispatcher`` calls
both in order.
"""

from corral.api.kinds.admissionregistration import MUTATING, VALIDATING
from corral.api.kinds.table import KindTable
from corral.server.admission.dynamic.attributes import AdmissionAttributes, Operation, Reviewer
from corral.server.admission.dynamic.dispatcher import Reviewers
from corral.server.admission.dynamic.validating_policies import PolicyReviewer
from corral.server.admission.dynamic.webhook_clients import WebhookClients
from corral.server.admission.dynamic.webhooks import MutatingWebhooks, ValidatingWebhooks
from corral.server.authz.authorizer import Authorizer
from corral.store import Store

__all__ = ["AdmissionAttributes", "Operation", "Reviewer", "Reviewers", "reviewers_of"]


def reviewers_of(store: Store, kinds: KindTable, authorizer: Authorizer) -> Reviewers:
    """Return the reviewers that a store's objects configure; callers must close them.

    ``kinds`` are served; ``authorizer`` answers authorization checks in CEL expressions.
    """
    clients = WebhookClients(store)
    return Reviewers(
        mutating=[MutatingWebhooks(store, MUTATING, clients, authorizer)],
        validating=[
            PolicyReviewer(store, kinds, authorizer),
            ValidatingWebhooks(store, VALIDATING, clients, authorizer),
        ],
        close=clients.aclose,
    )
