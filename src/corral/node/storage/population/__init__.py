"""The populator: imports, pulls, clones or uploads the content of claims, as CDI does.

Content from outside is untrusted until ``content`` has checked it.  It is prepared in the volume's
work directory and becomes the volume's content by one rename: after a kill before that, the
populator resumes; after a kill behind it, the volume's record says populated.

    populator         the controller: selects claims, reports progress on them
    sources           one method for each source of a DataVolume
    http_download     downloads from web servers
    upload            receives uploads from clients
    partial_content   content that has not arrived completely, resumable
    content           converts complete content to a disk
"""

from corral.node.storage.population.populator import Populator
from corral.node.storage.population.upload import Uploads

__all__ = ["Populator", "Uploads"]
