"""Manifests by flags, as virtctl makes them."""

import base64

import pytest
from click.testing import CliRunner

from corral.api import yaml
from corral.cli.errors import Problem
from corral.cli.main import corral

DISK = "--volume-containerdisk=src:demo"


def create(*arguments):
    result = CliRunner().invoke(corral, ["create", *arguments])
    if isinstance(result.exception, Problem):
        raise result.exception
    assert result.exit_code == 0, result.output
    return yaml.load(result.output)


def vm(*arguments):
    return create("vm", "--name=web", *arguments)


def template(document):
    return document["spec"]["template"]["spec"]


def test_a_machine_without_flags_has_a_name_and_memory():
    document = create("vm")
    assert document["metadata"]["name"].startswith("vm-")
    assert document["spec"]["runStrategy"] == "Always"
    assert template(document) == {
        "domain": {"devices": {}, "memory": {"guest": "512Mi"}},
        "terminationGracePeriodSeconds": 180,
    }


def test_volumes_have_boot_orders_and_buses():
    document = vm(
        "--volume-import=type:blank,size:1Gi,name:scratch",
        "--volume-pvc=src:disk,bootorder:2",
        DISK + ",bootorder:1",
    )
    volumes = template(document)["volumes"]
    assert [volume["name"] for volume in volumes] == ["web-containerdisk-0", "disk", "scratch"]
    assert template(document)["domain"]["devices"]["disks"] == [
        {"name": "web-containerdisk-0", "bootOrder": 1, "disk": {}},
        {"name": "disk", "bootOrder": 2, "disk": {}},
    ]
    assert document["spec"]["dataVolumeTemplates"] == [
        {
            "metadata": {"name": "scratch"},
            "spec": {
                "source": {"blank": {}},
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
            },
        }
    ]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (
            "type:http,url:http://host/a,size:1Gi,extraheaders:A: b;C: d",
            {"source": {"http": {"url": "http://host/a", "extraHeaders": ["A: b", "C: d"]}}},
        ),
        (
            "type:registry,url:docker://demo,size:1Gi",
            {"source": {"registry": {"url": "docker://demo"}}},
        ),
        ("type:pvc,src:ns/disk", {"source": {"pvc": {"namespace": "ns", "name": "disk"}}}),
        (
            "type:ds,src:ns/golden",
            {"sourceRef": {"kind": "DataSource", "namespace": "ns", "name": "golden"}},
        ),
    ],
)
def test_imports_have_a_source(text, spec):
    (made,) = vm(f"--volume-import={text}")["spec"]["dataVolumeTemplates"]
    assert made["metadata"]["name"].startswith("imported-volume-")
    made["spec"].pop("storage")
    assert made["spec"] == spec


def test_the_instance_type_is_inferred_from_a_volume():
    document = vm("--volume-pvc=src:disk")
    expected = {"inferFromVolume": "disk", "inferFromVolumeFailurePolicy": "Ignore"}
    assert document["spec"]["instancetype"] == document["spec"]["preference"] == expected
    assert template(document)["domain"]["memory"] == {"guest": "512Mi"}


def test_required_inference_leaves_out_the_memory():
    document = vm("--volume-pvc=src:disk", "--infer-instancetype", "--preference=cores")
    assert document["spec"]["instancetype"] == {"inferFromVolume": "disk"}
    assert document["spec"]["preference"] == {"name": "cores"}
    assert "memory" not in template(document)["domain"]


def test_given_memory_prevents_inference():
    document = vm("--volume-pvc=src:disk", "--memory=1Gi")
    assert "instancetype" not in document["spec"]
    assert template(document)["domain"]["memory"] == {"guest": "1Gi"}


def test_an_instance_type_may_be_of_the_namespace():
    document = vm("--instancetype=virtualmachineinstancetype/small")
    assert document["spec"]["instancetype"] == {
        "name": "small",
        "kind": "virtualmachineinstancetype",
    }


def test_flags_of_the_first_boot_become_cloud_init(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("gocubsgo\n")
    document = vm("--user=me", f"--password-file={secret}", "--ssh-key=ssh-ed25519 A")
    (volume,) = template(document)["volumes"]
    text = volume["cloudInitNoCloud"]["userData"]
    assert text.startswith("#cloud-config\n")
    assert yaml.load(text) == {
        "user": "me",
        "password": "gocubsgo",
        "chpasswd": {"expire": False},
        "ssh_authorized_keys": ["ssh-ed25519 A"],
    }


def test_given_user_data_is_passed_on():
    encoded = base64.b64encode(b"#cloud-config\n").decode()
    document = vm(f"--cloud-init-user-data={encoded}", "--cloud-init=configDrive")
    (volume,) = template(document)["volumes"]
    assert volume["cloudInitConfigDrive"] == {"userDataBase64": encoded}


@pytest.mark.parametrize(
    ("text", "credential"),
    [
        (
            "src:keys,user:me",
            {"sshPublicKey": {"propagationMethod": {"qemuGuestAgent": {"users": ["me"]}}}},
        ),
        (
            "type:ssh,src:keys,method:nocloud",
            {"sshPublicKey": {"propagationMethod": {"noCloud": {}}}},
        ),
        (
            "type:password,src:keys",
            {"userPassword": {"propagationMethod": {"qemuGuestAgent": {}}}},
        ),
    ],
)
def test_access_credentials_refer_to_secrets(text, credential):
    (found,) = template(vm(f"--access-cred={text}"))["accessCredentials"]
    ((kind, expected),) = credential.items()
    assert found == {kind: {"source": {"secret": {"secretName": "keys"}}, **expected}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run-strategy=Ever"], 'invalid RunStrategy "Ever"'),
        (["--volume-containerdisk=name:a"], "src must be specified"),
        ([DISK + ",colour:red"], "unknown param(s): colour:red"),
        (["--volume-containerdisk=demo"], "params need to have at least one colon: demo"),
        ([DISK + ",bootorder:0"], "bootorder must be greater than 0"),
        ([DISK + ",bootorder:x"], 'failed to parse param "bootorder"'),
        ([DISK + ",bootorder:1", DISK + ",bootorder:1"], "specified multiple times"),
        ([DISK + ",name:a", DISK + ",name:a"], "there is already a volume with name 'a'"),
        (["--volume-pvc=src:ns/a"], "not allowed to specify namespace of PVC 'a'"),
        (["--volume-import=size:1Gi"], "type must be specified"),
        (["--volume-import=type:blank"], "size must be specified"),
        (["--volume-import=type:blank,size:much"], 'failed to parse param "size"'),
        (["--volume-import=type:s3,url:x"], 'unknown source type "s3"'),
        (["--volume-import=type:pvc,src:a"], "namespace of PVC 'a' must be specified"),
        (["--infer-instancetype"], "at least one volume is needed"),
        ([DISK, "--infer-instancetype"], "works only with datasources, datavolumes or pvcs"),
        (["--infer-preference-from=b"], "there is no volume with name 'b'"),
        (["--instancetype=pod/a"], 'invalid instancetype kind "pod"'),
        (["--instancetype=a/b/c"], "invalid count 2 of slashes in prefix/name"),
        (["--instancetype=a", "--infer-instancetype"], "only one of --instancetype"),
        (["--instancetype=a", "--memory=1Gi"], "cannot be used together with an instance type"),
        (["--memory=much"], '"--memory" flag'),
        (["--access-cred=src:keys"], 'user must be specified with the method "ga"'),
        (["--access-cred=type:key,src:keys"], 'invalid type "key"'),
        (["--cloud-init=other", "--user=me"], 'invalid cloud-init data source type "other"'),
        (["--cloud-init=none", "--user=me"], "--cloud-init is none"),
        (["--cloud-init-user-data=eA==", "--user=me"], "cannot be used together"),
        (["--volume-sysprep=src:a,type:disk"], 'invalid source type "disk"'),
        (["--password-file=/nowhere/at/all", "--user=me"], "/nowhere/at/all"),
    ],
)
def test_invalid_flags_are_rejected(arguments, message):
    with pytest.raises(Problem) as refused:
        vm(*arguments)
    assert message in str(refused.value)


def test_an_instance_type():
    document = create(
        "instancetype", "--name=small", "--cpu=2", "--memory=256Mi", "--iothreadspolicy=auto",
        "--gpu=name:gpu1,devicename:nvidia",
    )  # fmt: skip
    assert document == {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "small"},
        "spec": {
            "cpu": {"guest": 2},
            "memory": {"guest": "256Mi"},
            "ioThreadsPolicy": "auto",
            "gpus": [{"name": "gpu1", "deviceName": "nvidia"}],
        },
    }


def test_a_preference():
    document = create(
        "preference", "--namespaced", "--cpu-topology=spread", "--machine-type=pc",
        "--volume-storage-class=fast",
    )  # fmt: skip
    assert document["kind"] == "VirtualMachinePreference"
    assert document["metadata"]["name"].startswith("preference-")
    assert document["spec"] == {
        "cpu": {"preferredCPUTopology": "spread"},
        "machine": {"preferredMachineType": "pc"},
        "volumes": {"preferredStorageClassName": "fast"},
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["instancetype", "--cpu=0", "--memory=1Gi"], "greater than zero"),
        (["instancetype", "--cpu=1", "--memory=x"], '"--memory" flag'),
        (["instancetype", "--cpu=1", "--memory=1Gi", "--gpu=name:a"], "devicename must be"),
        (["instancetype", "--cpu=1", "--memory=1Gi", "--iothreadspolicy=x"], "auto or shared"),
        (["preference", "--cpu-topology=round"], "sockets, cores, threads or spread"),
    ],
)
def test_invalid_instance_types_and_preferences_are_rejected(arguments, message):
    with pytest.raises(Problem) as refused:
        create(*arguments)
    assert message in str(refused.value)
