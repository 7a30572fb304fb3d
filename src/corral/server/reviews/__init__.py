"""Those outside of the server's own rules who have a say in what is stored.

``selection`` says what somebody wants to be asked of, ``envelope`` what a webhook is asked and
answers, ``judgement`` what a policy says of an object; all are pure.  ``webhooks`` asks programs of
users, ``policies`` keeps rules of users, and ``reviewers`` knows who is asked when.
"""

from corral.api.kinds.admissionregistration import MUTATING, VALIDATING
from corral.api.kinds.table import KindTable
from corral.server.authz.authorizer import Authorizer
from corral.server.reviews.act import Act, Operation, Reviewer
from corral.server.reviews.policies import Policies
from corral.server.reviews.reviewers import Reviewers
from corral.server.reviews.sites import Sites
from corral.server.reviews.webhooks import Mutating, Validating
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
