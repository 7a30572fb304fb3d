"""Those outside of the server's own rules who have a say in what is stored.

``matching`` says what somebody wants to be asked of, ``admission_review`` what a webhook is asked
and answers, ``policy_evaluation`` what a policy says of an object; all are pure.  ``webhooks`` asks
programs of users, ``validating_policies`` keeps rules of users, and ``dispatcher`` knows who is
asked when.
"""

from corral.api.kinds.admissionregistration import MUTATING, VALIDATING
from corral.api.kinds.table import KindTable
from corral.server.admission.dynamic.attributes import Act, Operation, Reviewer
from corral.server.admission.dynamic.dispatcher import Reviewers
from corral.server.admission.dynamic.validating_policies import Policies
from corral.server.admission.dynamic.webhook_clients import Sites
from corral.server.admission.dynamic.webhooks import Mutating, Validating
from corral.server.authz.authorizer import Authorizer
from corral.store import Store

__all__ = ["Act", "Operation", "Reviewer", "Reviewers", "reviewers_of"]


def reviewers_of(store: Store, kinds: KindTable, authorizer: Authorizer) -> Reviewers:
    """Those whom the objects of a store name; ``kinds`` are served.  To be closed in the end.

    ``authorizer`` answers what expressions ask about rights.
    """
    sites = Sites(store)
    return Reviewers(
        mutating=[Mutating(store, MUTATING, sites, authorizer)],
        validating=[
            Policies(store, kinds, authorizer),
            Validating(store, VALIDATING, sites, authorizer),
        ],
        close=sites.aclose,
    )
