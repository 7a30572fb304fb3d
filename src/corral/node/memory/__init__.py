"""A machine's memory that is kept: saved to a claim's volume, and gone on from by another machine.

``saved`` is what lies in the volume; ``saving`` and ``restoring`` are the steps, each of which may
be the last one of a manager; ``shelf`` finds volumes by their claims, and marks these.
"""
