"""The serving certificate of webhooks and of the aggregated API: kept in a Secret, and published.

Any process creates the Secret when it starts; the leader renews it, and writes its authorities into
the webhook configurations and APIServices that ``corral install`` has applied.  All processes
follow it.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from lightkube.models.admissionregistration_v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from lightkube.models.apiregistration_v1 import APIService
from lightkube.models.core_v1 import Secret

from corral import pki
from corral.api.errors import AlreadyExists, NotFound
from corral.api.object import Document, Key
from corral.client.client import Client
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.informer import Informer
from corral.reconcile.objects import key_of, version_of
from corral.reconcile.workqueue import WorkQueue

NAME: Final = "corral-controllers"
"""Name of the Service of the controllers, and of their webhook configurations."""
SECRET: Final = "corral-controllers-tls"  # noqa: S105 - a name
API_SERVICES: Final = ("v1.subresources.kubevirt.io", "v1alpha3.subresources.kubevirt.io")
CHECK_SECONDS: Final = 3600.0
"""Time between two checks whether the certificate is due to be renewed."""
_TYPE: Final = "kubernetes.io/tls"
_SECRET: Final = "secret"  # noqa: S105 - a key of the queue

Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
Data = Mapping[str, bytes]


def hosts_of(namespace: str) -> Sequence[str]:
    """Return the names by which an API server calls the Service of the controllers."""
    service = f"{NAME}.{namespace}.svc"
    return (service, f"{service}.cluster.local", "localhost", "127.0.0.1")


async def ensure(client: Client, namespace: str) -> Data:
    """Return the certificate; create its Secret where there is none.  Raises ApiError."""
    try:
        return data_of(await client.get(Secret, SECRET, namespace))
    except NotFound:
        data = pki.renewed({}, hosts_of(namespace), NAME)
        document = {"metadata": {"name": SECRET}, "type": _TYPE, "data": _encoded(data)}
        try:
            await client.create(Secret, document, namespace)
        except AlreadyExists:  # by another process
            return data_of(await client.get(Secret, SECRET, namespace))
        return data


def data_of(secret: Secret) -> Data:
    """Return the decoded data of a Secret, without what is not base64."""
    decoded = {}
    for name, value in (secret.data or {}).items():
        try:
            decoded[name] = base64.b64decode(value, validate=True)
        except ValueError:
            continue
    return decoded


def _encoded(data: Data) -> Document:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def follow(context: ControllerContext, namespace: str, changed: Callable[[Data], None]) -> None:
    """Call ``changed`` with the certificate whenever the Secret has changed."""

    def handle(_old: Secret | None, new: Secret | None) -> None:
        if new is not None and key_of(new) == Key(namespace, SECRET):
            changed(data_of(new))

    _secrets(context).handle(handle)


def _secrets(context: ControllerContext) -> Informer[Secret]:
    return context.informers.of(Secret, fields=f"metadata.name={SECRET}")


class _Target(NamedTuple):
    """An object that holds the authorities: the name of its kind, and its own."""

    kind: str
    name: str


def controller(context: ControllerContext, namespace: str) -> Controller[_Target]:
    """Return the controller that renews the certificate and publishes its authorities."""
    loop = ServingCertificate(context, namespace)
    return Controller(
        "serving-certificate", loop.reconcile, queue=loop.queue, sources=loop.sources, workers=1
    )


class ServingCertificate:
    """Caches of the Secret, and of the objects that hold its authorities."""

    def __init__(self, context: ControllerContext, namespace: str) -> None:
        self.queue = WorkQueue[_Target]()
        self._client = context.client
        self._key = Key(namespace, SECRET)
        self._secrets = _secrets(context)
        named = f"metadata.name={NAME}"
        self._mutating = context.informers.of(MutatingWebhookConfiguration, fields=named)
        self._validating = context.informers.of(ValidatingWebhookConfiguration, fields=named)
        self._services = {
            name: context.informers.of(APIService, fields=f"metadata.name={name}")
            for name in API_SERVICES
        }
        holders: list[Informer[Any]] = [
            self._mutating,
            self._validating,
            *self._services.values(),
        ]
        self.sources = (self._secrets, *holders)
        self._targets = (
            _Target("MutatingWebhookConfiguration", NAME),
            _Target("ValidatingWebhookConfiguration", NAME),
            *(_Target("APIService", name) for name in API_SERVICES),
        )
        self._renewal = _Target(_SECRET, SECRET)
        self.queue.add(self._renewal)
        self._secrets.handle(self._secret_changed)
        for target, informer in zip(self._targets, holders, strict=True):
            informer.handle(partial(self._target_changed, target))

    def _secret_changed(self, _old: object, _new: object) -> None:
        for target in (self._renewal, *self._targets):
            self.queue.add(target)

    def _target_changed(self, target: _Target, _old: object, _new: object) -> None:
        self.queue.add(target)

    async def reconcile(self, target: _Target) -> Result | None:
        """Renew the certificate if it is due, or publish its authorities in one object."""
        if target == self._renewal:
            return await self._renew()
        secret = self._secrets.get(self._key)
        if secret is None or not (authorities := data_of(secret).get(pki.AUTHORITY)):
            return None
        bundle = base64.b64encode(authorities).decode()
        match target.kind:
            case "MutatingWebhookConfiguration":
                await self._publish(self._mutating.get(Key("", NAME)), bundle)
            case "ValidatingWebhookConfiguration":
                await self._publish(self._validating.get(Key("", NAME)), bundle)
            case _:
                await self._publish_to_service(target.name, bundle)
        return None

    async def _renew(self) -> Result:
        secret = self._secrets.get(self._key)
        if secret is None:
            await ensure(self._client, self._key.namespace)
            return Result(requeue_after=CHECK_SECONDS)
        observed = data_of(secret)
        data = pki.renewed(observed, hosts_of(self._key.namespace), NAME)
        if data is not observed:
            version = {"resourceVersion": version_of(secret)}  # of two leaders one renews
            await self._client.patch(
                Secret, self._key, {"metadata": version, "data": _encoded(data)}
            )
        return Result(requeue_after=CHECK_SECONDS)

    async def _publish(self, found: Configuration | None, bundle: str) -> None:
        """Write the bundle into all webhooks of a configuration."""
        if found is None:
            return
        webhooks: Sequence[Any] = found.webhooks or ()
        patch: list[Document] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version_of(found)}
        ]
        patch += [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, webhook in enumerate(webhooks)
            if webhook.clientConfig.caBundle != bundle
        ]
        if len(patch) > 1:
            await self._client.patch(type(found), Key("", NAME), patch)

    async def _publish_to_service(self, name: str, bundle: str) -> None:
        key = Key("", name)
        found = self._services[name].get(key)
        if found is not None and found.spec is not None and found.spec.caBundle != bundle:
            await self._client.patch(APIService, key, {"spec": {"caBundle": bundle}})
