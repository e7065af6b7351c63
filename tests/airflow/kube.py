"""API server of Kubernetes on loopback, with etcd. No node takes part: it keeps pods, and this module runs them.

The server is built from its Go modules, once; etcd is Debian's. A pod's command runs as a process of this machine, with
Spark in local mode, so the arguments and the folder that `spark-submit` wrote into the pod are those that count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from airflow_mq.spark.java import cache_folder
from airflow_mq.testing.loopback import free_port
from tests.debian import debian_program, libraries
from tests.waiting import eventually

SOURCE = Path(__file__).with_name("apiserver")
NAMESPACE = "spark"
#: Tokens of a user who may do everything, and of the Airflow task, which may do what the documentation names.
ADMINISTRATOR, TASK = "token-of-the-administrator", "token-of-the-task"
#: As docs/clusters.md names them.
VERBS = ["create", "get", "list", "watch", "delete", "deletecollection", "patch"]
RESOURCES = {
    "": ["pods", "services", "configmaps", "persistentvolumeclaims"],
    "networking.k8s.io": ["networkpolicies"],
}
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: task}}}}]
clusters: [{{name: test, cluster: {{server: "{address}", certificate-authority: "{certificate}"}}}}]
users: [{{name: task, user: {{token: {token}}}}}]
"""


def can_build() -> bool:
    """Return whether the server was built, or can be."""
    return _built().exists() or shutil.which("go") is not None


def _built() -> Path:
    version = next(line.split()[-1] for line in (SOURCE / "go.mod").read_text().splitlines() if "/kubernetes v" in line)
    return cache_folder() / f"kube-apiserver-{version}"


def api_server() -> Path:
    """Return the program. Building it takes about ten minutes of two processors."""
    built = _built()
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = Path(folder) / "kube-apiserver"
            build = ["go", "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", str(made), "."]
            subprocess.run(build, cwd=SOURCE, check=True)
            made.rename(built)
    return built


class Kubernetes:
    """An API server with one namespace, in which tasks and drivers have the role that the documentation names."""

    def __init__(self, folder: Path) -> None:
        from kubernetes import client

        program = api_server()
        self.folder, port = folder, free_port()
        self.address, certificate = f"https://127.0.0.1:{port}", folder / "certificates" / "apiserver.crt"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG.format(address=self.address, certificate=certificate, token=TASK))
        (folder / "tokens").write_text(f'{ADMINISTRATOR},admin,1,"system:masters"\n{TASK},task,2\n')
        _write_key(folder / "key")
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            store = self._start_etcd()
            self._start(
                program, f"--etcd-servers={store}", "--bind-address=127.0.0.1", f"--secure-port={port}",
                f"--cert-dir={folder / 'certificates'}", f"--token-auth-file={folder / 'tokens'}",
                "--authorization-mode=RBAC", f"--service-account-issuer={self.address}",
                f"--service-account-key-file={folder / 'key'}", f"--service-account-signing-key-file={folder / 'key'}",
                "--service-cluster-ip-range=127.1.0.0/16", "--endpoint-reconciler-type=none",
            )  # fmt: skip
            configuration = client.Configuration(host=self.address)
            configuration.ssl_ca_cert = str(certificate)
            configuration.api_key["authorization"] = f"Bearer {ADMINISTRATOR}"
            eventually(certificate.exists, 120)
            api = client.ApiClient(configuration)
            self.core, self._roles = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
            eventually(self._is_ready, 300)
            self._make_namespace()
        except BaseException:
            self.close()
            raise

    def _start_etcd(self) -> str:
        program, own, peers = debian_program("etcd", "etcd-server"), free_port(), free_port()
        addresses = [f"http://127.0.0.1:{own}", f"http://127.0.0.1:{peers}"]
        words = [
            f"--{name}={address}" for address, names in zip(addresses, (
                ("listen-client-urls", "advertise-client-urls"),
                ("listen-peer-urls", "initial-advertise-peer-urls"),
            )) for name in names
        ]  # fmt: skip
        cluster = f"--initial-cluster=default={addresses[1]}"
        self._start(program, f"--data-dir={self.folder / 'etcd'}", *words, cluster)
        return addresses[0]

    def _start(self, program: Path, *arguments: str) -> None:
        with (self.folder / f"{program.name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(
                [program, *arguments], env={**os.environ, **libraries(program)}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=self.folder, start_new_session=True,
            ))  # fmt: skip

    def _is_ready(self) -> bool:
        for process in self._processes:
            assert process.poll() is None, "".join(file.read_text()[-2000:] for file in self.folder.glob("*.log"))
        with suppress(Exception):
            return bool(self.core.list_namespaced_config_map("kube-system"))
        return False

    def _make_namespace(self) -> None:
        self.core.create_namespace({"metadata": {"name": NAMESPACE}})
        self.core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "spark"}})
        rules = [{"apiGroups": [group], "resources": names, "verbs": VERBS} for group, names in RESOURCES.items()]
        self._roles.create_namespaced_role(NAMESPACE, {"metadata": {"name": "spark"}, "rules": rules})
        subjects = [
            {"kind": "ServiceAccount", "name": "spark", "namespace": NAMESPACE},
            {"kind": "User", "name": "task", "apiGroup": "rbac.authorization.k8s.io"},
        ]
        role = {"kind": "Role", "name": "spark", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "spark"}, "subjects": subjects, "roleRef": role}
        self._roles.create_namespaced_role_binding(NAMESPACE, binding)

    def pods(self) -> list[Any]:
        """Return the pods of drivers, the earliest first."""
        found = self.core.list_namespaced_pod(NAMESPACE).items
        return sorted(found, key=lambda pod: str(pod.metadata.creation_timestamp))

    def set_phase(self, pod: str, phase: str) -> None:
        """Report a phase, as the kubelet of the pod's node does."""
        self.core.patch_namespaced_pod_status(pod, NAMESPACE, {"status": {"phase": phase}})

    def close(self) -> None:
        """End the server and etcd."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(kind, form, serialization.NoEncryption()))
