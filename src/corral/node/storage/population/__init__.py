"""Gives claims their content: fetched, pulled, copied, uploaded, or none at all.

What comes from outside is hostile until ``content`` has looked at it.  Everything is made in the
volume's workplace, and becomes the volume's content by one rename; who is killed before that goes
on from what has arrived, who is killed after it sees that the volume is filled.

    populator         which claims are to be filled, and how far they are: told on the claim
    sources           one function for each source
    http_download     fetches from web servers
    upload            waits for clients
    partial_content   what has arrived of a content
    content           makes a disk of it
"""

from corral.node.storage.population.populator import Fillings
from corral.node.storage.population.upload import Uploads

__all__ = ["Fillings", "Uploads"]
