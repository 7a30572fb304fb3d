"""What a machine says of the DataVolumes that it waits for."""

import msgspec
import pytest

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.controllers.vmi.required_claims import Claims, conditions


def data_volume(name, phase, ready="False", running=("True", "")):
    status, message = running
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"source": {"blank": {}}},
        "status": {
            "phase": phase,
            "progress": "30.5%",
            "conditions": [
                {"type": "Ready", "status": ready},
                {"type": "Running", "status": status, "message": message},
            ],
        },
    }
    return msgspec.convert(document, DataVolume)


DONE = data_volume("done", "Succeeded", "True", ("False", "Import Complete"))


@pytest.mark.parametrize(
    ("data_volumes", "waited"),
    [
        ([DONE, data_volume("root", "ImportInProgress")], "root is ImportInProgress"),
        ([data_volume("a", ""), data_volume("b", "Failed")], "a is Pending; b is Failed"),
        (
            [data_volume("root", "ImportInProgress", running=("False", "connection refused"))],
            "root is ImportInProgress (connection refused)",
        ),
    ],
)
def test_a_vmi_reports_which_data_volumes_it_waits_for_and_why(data_volumes, waited):
    entries = conditions(Claims(data_volumes=data_volumes))["DataVolumesReady"]
    assert (entries.status, entries.reason) == ("False", "NotAllDVsReady")
    assert entries.message == f"Not all of the VMI's DVs are ready: {waited}"


def test_a_vmi_does_not_wait_if_all_data_volumes_are_ready():
    entries = conditions(Claims(data_volumes=[DONE]))["DataVolumesReady"]
    assert entries.message == "All of the VMI's DVs are bound and not running"


def test_a_vmi_without_data_volumes_has_no_such_condition():
    assert "DataVolumesReady" not in conditions(Claims())
