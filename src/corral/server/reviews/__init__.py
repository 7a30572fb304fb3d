"""Those outside of the server's own rules who have a say in what is stored."""

from corral.server.reviews.act import Act, Operation, Reviewer
from corral.server.reviews.reviewers import Reviewers

__all__ = ["Act", "Operation", "Reviewer", "Reviewers"]
