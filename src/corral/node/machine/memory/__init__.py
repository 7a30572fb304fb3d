"""A machine's memory that is kept: saved to a claim's volume, and gone on from by another machine.

``storage.saved_memory`` is what lies in the volume; ``save`` and ``restore`` are the steps, each of
which may be the last one of a manager; ``storage.saved_memory_claims`` finds volumes by their
claims, and marks these.
"""
