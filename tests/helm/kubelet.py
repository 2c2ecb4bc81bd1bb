"""Runs a rendered pod as a kubelet would: its volumes, its user, its arguments, its probes.

In a bare root directory with the tests' own interpreter in place of the image; the network is
this machine's loopback.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.helm.charts import NAMESPACE, ROOT, Manifest, of_kind, pod_specs
from tests.support.bare_root import BareRoot
from tests.support.processes import page_of, wait_until

Secrets = Mapping[str, Mapping[str, str]]
_ENTRYPOINT = "table-queue-exporter"  # the Dockerfile's, whose own test runs it


class Pod:
    """One pod of a rendered chart; a context manager that runs its container.

    ``secrets`` are what the cluster holds, by name and key. ``kind`` chooses the pod: that of the
    StatefulSet or Deployment, or "Pod" for the test's.
    """

    def __init__(
        self,
        directory: Path,
        objects: list[Manifest],
        secrets: Secrets,
        *,
        kind: str = "StatefulSet",
        ordinal: int = 0,
    ) -> None:
        spec = pod_specs(objects)[kind]
        (self.container,) = spec["containers"]
        context = spec["securityContext"]
        self._user = f"{context['runAsUser']}:{context['runAsGroup']}"
        self._objects = objects
        self._secrets = secrets
        self._root = BareRoot(directory / "root")
        for place in {sys.prefix, str(ROOT / "exporter")}:
            self._root.bind(Path(place))
        services = [s["metadata"]["name"] for s in of_kind("Service", objects)]
        with (self._root.path / "etc/hosts").open("a") as hosts:
            hosts.writelines(f"127.0.0.1 {name}.{NAMESPACE}.svc\n" for name in services)
        self._writable: list[str] = []
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for mount in self.container.get("volumeMounts", []):
            self._mount(mount, volumes.get(mount["name"]))
        self._environment = {
            "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "exporter"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "POD_NAME": f"{self._name(kind)}-{ordinal}",
        }
        self.log_file = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def _name(self, kind: str) -> str:
        (made,) = of_kind(kind, self._objects)
        return str(made["metadata"]["name"])

    def _mount(self, mount: Manifest, volume: Manifest | None) -> None:
        place = self._root.path / mount["mountPath"].lstrip("/")
        place.mkdir(parents=True)
        files: Mapping[str, str] = {}
        if volume is None or "emptyDir" in volume:  # a claim of the StatefulSet, or an own one
            self._writable.append(mount["mountPath"])
            os.chown(place, *(int(number) for number in self._user.split(":")))
        elif "secret" in volume:
            files = self._secrets[volume["secret"]["secretName"]]
        else:
            (made,) = [
                m
                for m in of_kind("ConfigMap", self._objects)
                if m["metadata"]["name"] == volume["configMap"]["name"]
            ]
            files = made["data"]
        for name, text in files.items():
            (place / name).write_text(text)
            (place / name).chmod(0o440 if volume and "secret" in volume else 0o444)
            os.chown(place / name, 0, int(self._user.split(":")[1]))

    def file(self, path: str) -> Path:
        """Where a file of the pod lies on this machine."""
        return self._root.path / path.lstrip("/")

    def command(self) -> list[str]:
        """What the container runs: its arguments as they stand, variables put in."""
        words = self.container.get("command") or [_ENTRYPOINT, *self.container["args"]]
        return [
            re.sub(r"\$\((\w+)\)", lambda found: self._environment[found[1]], word)
            for word in words
        ]

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a program in the container, as its user, to its end."""
        return subprocess.run(
            self._root.command(
                command,
                user=self._user,
                environment=self._environment,
                writable=self._writable,
            ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def port(self) -> int:
        """The container's port."""
        (port,) = self.container["ports"]
        return int(port["containerPort"])

    def probe(self, name: str) -> bool:
        """Whether a probe, such as ``readiness``, succeeds now."""
        probe = self.container[f"{name}Probe"]
        if "exec" in probe:
            return self.run(probe["exec"]["command"]).returncode == 0
        return page_of(self.port, probe["httpGet"]["path"]) is not None

    def __enter__(self) -> "Pod":
        command = self._root.command(
            self.command(),
            user=self._user,
            environment=self._environment,
            writable=self._writable,
        )
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        process = self._process

        def ready() -> bool:
            assert process.poll() is None, self.log_file.read_text()
            return self.probe("readiness")

        try:
            wait_until(ready, "the pod to be ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=15)
