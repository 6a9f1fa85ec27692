"""What a cluster would do, on this machine: Secrets as files, variables, containers as processes, and a PostgreSQL."""

import functools
import glob
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

import kit

GUARD = 60
"""Seconds after which something hangs. Nothing is expected to take as long."""


def until(what, condition):
    """Waits until a condition holds, and answers what it answered."""
    end = time.monotonic() + GUARD
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {GUARD} s: {what}")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def binary():
    """The server, as `cargo build` leaves it; PGSEMAPHORE_BINARY names another."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or kit.ROOT / "target")
    path = pathlib.Path(os.environ.get("PGSEMAPHORE_BINARY") or target / "debug/pgsemaphore")
    if not path.is_absolute():
        path = kit.ROOT / path
    assert path.exists(), f"{path} is not there: cargo build --workspace --bins, or set PGSEMAPHORE_BINARY"
    return path


@functools.cache
def container_user():
    """Runs a process as the user of the image, where that is possible: a number that nobody knows."""
    image = {"user": 65532, "group": 65532, "extra_groups": []}
    if os.geteuid() != 0:
        return {}
    try:
        subprocess.run([binary(), "--version"], check=True, capture_output=True, **image)
        return image
    except (OSError, subprocess.CalledProcessError):
        return {}  # The binary is where only root may go.


class Folder:
    """A temporary folder that others may enter."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="pgsemaphore-chart."))
        self.path.chmod(0o755)

    def write(self, name, text, mode=0o644):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def remove(self):
        shutil.rmtree(self.path)


class Authority:
    """Certificates of an authority of its own, as cert-manager would put them into Secrets."""

    def __init__(self, folder):
        self.folder = folder
        self._openssl("req", "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt", "-addext", "keyUsage=keyCertSign")
        self.ca = (folder / "ca.crt").read_text()

    def certificate(self, *names):
        """A certificate and its key, for names like `DNS:a` and `IP:127.0.0.1`."""
        request = ["req", "-subj", "/CN=leaf", "-keyout", "leaf.key", "-out", "leaf.csr"]
        self._openssl(*request)
        (self.folder / "leaf.cnf").write_text(f"subjectAltName={','.join(names)}\n")
        sign = ["x509", "-req", "-in", "leaf.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        self._openssl(*sign, "-extfile", "leaf.cnf", "-out", "leaf.crt")
        return (self.folder / "leaf.crt").read_text(), (self.folder / "leaf.key").read_text()

    def _openssl(self, command, *arguments):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"] if command == "req" else []
        subprocess.run(["openssl", command, *new, *arguments], cwd=self.folder, check=True, capture_output=True)


class Postgres:
    """A PostgreSQL that asks for passwords, and speaks TLS with a certificate for 127.0.0.1."""

    password = "of the 'owner': 50% & more?"

    def __init__(self):
        self.folder = Folder()
        self.port = free_port()
        self.owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        self.authority = Authority(self.folder.path)
        certificate, key = self.authority.certificate("IP:127.0.0.1")
        self.folder.write("server.crt", certificate)
        self.folder.write("server.key", key, 0o600)
        self.folder.write("password", self.password + "\n")
        if self.owner:
            shutil.chown(self.folder.path, "postgres", "postgres")
            shutil.chown(self.folder.path / "server.key", "postgres", "postgres")
        initdb = ["initdb", "-U", "postgres", "-A", "scram-sha-256", "--pwfile", "password", "-E", "UTF8", "--locale=C.UTF-8"]
        self._run([*initdb, "--no-sync", "-D", "data"])
        self.start()

    @staticmethod
    def _binary(name):
        folders = [os.environ.get("PGSEMAPHORE_PG_BIN", "")] + sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
        for folder in folders + os.environ["PATH"].split(":"):
            if folder and os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
        raise AssertionError(f"{name} is not installed: scripts/install postgresql")

    def _run(self, command):
        command[0] = self._binary(command[0])
        done = subprocess.run(command, cwd=self.folder.path, capture_output=True, text=True, **self.owner)
        assert done.returncode == 0, done.stderr

    def start(self):
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        settings |= {"ssl": "on", "ssl_cert_file": "../server.crt", "ssl_key_file": "../server.key"}
        command = [self._binary("postgres"), "-D", "data"]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder.path / "log", "a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder.path, stdout=log, stderr=log, **self.owner)
        until("PostgreSQL answers", lambda: self._psql("SELECT 1").returncode == 0)

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(GUARD)

    def remove(self):
        self.stop()
        self.folder.remove()

    def _psql(self, statement, database="postgres"):
        url = f"postgres://postgres@127.0.0.1:{self.port}/{database}"
        command = [self._binary("psql"), url, "-XAtqc", statement]
        environment = {"PATH": os.environ["PATH"], "PGPASSWORD": self.password}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def sql(self, statement, database="postgres"):
        done = self._psql(statement, database)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def values(self, database):
        """The values by which the chart finds a database in it."""
        return {"host": "127.0.0.1", "port": self.port, "name": database, "user": "postgres"}


class Container:
    """A container of a manifest as a process: exactly its command, arguments and variables. What is mounted is in a
    temporary folder, and the paths are those of that folder."""

    def __init__(self, pod, container, secrets, folder):
        self.folder = folder
        mounted = {}
        for mount in container.get("volumeMounts", []):
            volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
            mounted[mount["mountPath"]] = self._fill(volume, secrets)
        entrypoint = json.loads(re.search(r"ENTRYPOINT (.*)", (kit.ROOT / "server/Dockerfile").read_text())[1])
        command = container.get("command", entrypoint) + container.get("args", [])
        self.command = [self._mapped(word, mounted) for word in command]
        self.variables = {"PATH": f"{binary().parent}:/usr/bin:/bin"}
        for each in container["env"]:
            self.variables[each["name"]] = self._mapped(self._value(each), mounted)

    def _fill(self, volume, secrets):
        """Files of a volume, and where they are."""
        path = pathlib.Path(tempfile.mkdtemp(dir=self.folder.path))
        path.chmod(0o755)
        if "secret" in volume:
            contents = secrets[volume["secret"]["secretName"]]
            files = {item["path"]: contents[item["key"]] for item in volume["secret"]["items"]}
        elif "configMap" in volume:
            files = secrets[volume["configMap"]["name"]]
        else:
            files = {}
        for name, text in files.items():
            self.folder.write(path / name, text)
        return str(path)

    @staticmethod
    def _mapped(text, mounted):
        paths = "|".join(map(re.escape, sorted(mounted, reverse=True)))
        return re.sub(rf"(?<![\w/])({paths})(?=/|$)", lambda found: mounted[found[0]], text) if mounted else text

    def _value(self, each):
        if "value" in each:
            return re.sub(r"\$\((\w+)\)", lambda found: self.variables.get(found[1], found[0]), each["value"])
        field = each["valueFrom"]["fieldRef"]["fieldPath"]
        return {"status.podIP": "127.0.0.1", "metadata.name": "a-pod", "metadata.namespace": kit.NAMESPACE}[field]

    def start(self):
        return subprocess.Popen(
            self.command,
            executable=shutil.which(self.command[0], path=self.variables["PATH"]),
            env=self.variables,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **container_user(),
        )

    def run(self):
        """Exit code and output of a container that ends by itself."""
        process = self.start()
        out, err = process.communicate(timeout=GUARD)
        return process.returncode, out + err


class Holder:
    """A running holder, and calls to it."""

    def __init__(self, container):
        self.process = container.start()
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise AssertionError(line + self.process.communicate(timeout=GUARD)[1])
        self.scheme, self.port = re.fullmatch(r"listening on (https?)://0\.0\.0\.0:(\d+)\n", line).groups()

    def get(self, path, token=None, ca=None, name=None, certificate=None):
        """Status and body. With an authority, for the name that the certificate must have."""
        connection = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=GUARD)
        connection.connect()
        if self.scheme == "https":
            context = ssl.create_default_context(cadata=ca)
            if certificate:
                context.load_cert_chain(*certificate)
            connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    def ready(self, **how):
        """Waits until Kubernetes would send it calls."""
        return until("the holder is ready", lambda: self.get("/readyz", **how)[0] == 200)

    def environment(self):
        """The variables that the process really has, behind whatever started it."""
        entries = pathlib.Path(f"/proc/{self.process.pid}/environ").read_bytes().decode().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def end(self):
        """Exit code and log after the signal by which Kubernetes ends a pod."""
        self.process.terminate()
        _, log = self.process.communicate(timeout=GUARD)
        return self.process.returncode, log
