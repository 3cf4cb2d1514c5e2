"""Admission on a real cluster: certificates, webhook and objects, put together.  Every replica runs it.

    every replica   answers the API server, shares the certificates, makes a new one when it is due
    the leader      writes the objects by which the API server knows of us, and puts them back

Only one replica writes objects, since during an update the replicas differ in what they would write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit

from subak.admission import certificates, objects
from subak.admission.answers import Answers, always
from subak.admission.certificates import BadSecret, Generation
from subak.admission.keeper import Keeper
from subak.admission.keyring import Keyring
from subak.admission.objects import MUTATING, VALIDATING, Address, Wanted
from subak.admission.owned import Owned
from subak.admission.records import Writers
from subak.admission.scope import Scope
from subak.admission.webhook import Webhook
from subak.dialects.interpreter import Interpreter
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.resource import SECRETS, Resource
from tinykube.status import ApiError

NAMESPACE = "subak-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}"
WRITERS = Writers(frozenset({f"{ACCOUNT}:subak-controller"}), frozenset({f"{ACCOUNT}:subak-agent"}))
"""Our own programs, by the names of their service accounts in deploy/manifests."""

SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False, kind="SelfSubjectReview")

PERIOD, PAUSE = 30.0, 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What the administrator chooses.

    `schedulers` are the names that we serve; they may change while we run (`Admission.names_changed`).  `url` is where
    the API server finds this replica if not through the Service.  `settling` is how long a new authority is trusted
    before its certificate is presented.  `slots` says whether pods are prepared for nodes without NRI
    (`admission.slots`).
    """

    schedulers: Collection[str]
    send_to: str = "subak"
    writers: Writers = WRITERS
    allowed: frozenset[str] = frozenset()
    slots: Callable[[], bool] = always
    namespace: str = NAMESPACE
    service: str = "subak-webhook"
    secret: str = "subak-webhook"
    url: str = ""
    host: str | None = None
    port: int = 9443
    lifetime: timedelta = timedelta(days=90)
    settling: timedelta = timedelta(minutes=10)

    def names(self) -> frozenset[str]:
        """What the certificate must be good for: the names of the Service, and the host of the URL."""
        service = f"{self.service}.{self.namespace}"
        names = {f"{service}.svc", f"{service}.svc.cluster.local"}
        host = urlsplit(self.url).hostname
        return frozenset(names | ({_canonical(host)} if host else set()))


def _canonical(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host.lower()


def _now() -> datetime:
    return datetime.now(UTC)


class Admission:
    """One replica's part.  `trouble` says why it does not do all of its work, and is empty if it does.

    `serving` is set once the webhook listens; `presented` is the certificate that it shows.
    """

    def __init__(
        self, client: Client, interpreter: Interpreter, options: Options, clock: Callable[[], datetime] = _now
    ) -> None:
        self.trouble = "admission has not begun"
        self.serving = asyncio.Event()
        self._client = client
        self._options = options
        self._writers: Writers | None = None
        self._clock = clock
        self._leads = False
        self._scope = Scope(interpreter.resources, Owned.by(interpreter), options.schedulers)
        self._address = Address(options.namespace, options.service, options.url)
        answers = Answers(interpreter, self._scope, options.writers, options.send_to, options.allowed, options.slots)
        self.webhook = Webhook(answers, options.host, options.port)
        self._keyring = Keyring(client, options.namespace, options.secret, options.names(), options.lifetime, clock)
        self.presented: Generation | None = None
        self._trusted: dict[str, datetime] = {}
        self._changed = asyncio.Event()
        self._changed.set()
        self._period = min(PERIOD, options.settling.total_seconds() or PERIOD)
        self._secret_changed = True
        places = [(each.resource, each.name) for each in (*self._policies(options.writers), *self._webhooks())]
        self._keeper = Keeper(client, places, self._changed.set)
        self._secrets = Reflector(
            client,
            SECRETS,
            dict,
            lambda *_: self._note_secret(),
            self._note_secret,
            namespace=options.namespace,
            fields=f"metadata.name={options.secret}",
        )

    def lead(self) -> None:
        """From now on, write the objects."""
        self._leads = True
        self._changed.set()

    def names_changed(self) -> None:
        """Look again at the names that we serve."""
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keeper.run())
                group.create_task(self._secrets.run())
                group.create_task(self._keep())
        finally:
            await self.webhook.stop()

    async def _keep(self) -> None:
        """Look at everything whenever something has changed, and now and then because time passes."""
        while True:
            try:
                async with asyncio.timeout(PAUSE if self.trouble else self._period):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            troubles = await self._step()
            for each in troubles:
                if each not in self.trouble:
                    log.warning("admission: %s", each)
            self.trouble = "; ".join([*troubles, *self._keeper.unknown()])

    async def _step(self) -> list[str]:
        """Do what is to be done; what could not be done is told.  The policy needs neither webhook nor certificate."""
        troubles: list[str] = []
        try:
            if self._writers is None:
                self._writers = await self._with_ourselves(self._options.writers)
            troubles += await self._put_all(self._policies(self._writers))
            await self._serve()
        except (ApiError, OSError, TimeoutError, BadSecret) as error:
            return [*troubles, str(error)]
        return troubles + await self._put_all(self._webhooks())

    async def _put_all(self, wanted: list[Wanted]) -> list[str]:
        troubles = []
        for each in wanted if self._leads else ():
            try:
                await self._keeper.put(each)
            except (ApiError, OSError, TimeoutError) as error:
                troubles.append(f"{each.resource} {each.name} cannot be written: {error}")
        return troubles

    async def _serve(self) -> None:
        """Present the right certificate, and listen."""
        if self._secret_changed or self._keyring.due():
            self._secret_changed = False
            try:
                await self._keyring.refresh()
            except BaseException:
                self._secret_changed = True
                raise
        self._observe()
        known = self._keyring.known
        chosen = certificates.presented(known, self._trusted, self._clock(), self._options.settling)
        if chosen != self.presented:
            self.webhook.present(chosen.certificate, chosen.key)
            self.presented = chosen
            log.info("the webhook presents the certificate that expires at %s", chosen.expires)
        if not self.serving.is_set():
            await self.webhook.start()
            self.serving.set()

    def _observe(self) -> None:
        """Note which authorities the API server has been told to trust, for both webhooks."""
        seen = [self._keeper.found(kind, objects.NAME) for kind in (MUTATING, VALIDATING)]
        bundles = [objects.authorities(each) for each in seen]
        for each in self._keyring.known:
            if all(each.authority in text for text in bundles):
                self._trusted.setdefault(each.authority, self._clock())
            else:
                self._trusted.pop(each.authority, None)

    async def _with_ourselves(self, writers: Writers) -> Writers:
        """The writers and whoever we are to the API server: the policy must not stop our own Bindings."""
        question = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
        try:
            answer = await self._client.create(SELF_REVIEWS, question)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            log.warning("the API server does not tell who we are: %s; only %s may write records", error, writers)
            return writers
        return replace(writers, everywhere=writers.everywhere | {answer["status"]["userInfo"]["username"]})

    def _policies(self, writers: Writers) -> list[Wanted]:
        return objects.policies(self._scope, writers)

    def _webhooks(self) -> list[Wanted]:
        return objects.webhooks(self._scope, self._address, certificates.bundle(self._keyring.known))

    def _note_secret(self) -> None:
        self._secret_changed = True
        self._changed.set()
