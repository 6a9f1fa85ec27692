"""What the tests of the chart share: renders, by both versions of Helm, and what is found in them."""

import functools
import os
import pathlib
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/pgsemaphore"
HELMS = {"Helm 3": os.environ["HELM3"], "Helm 4": os.environ["HELM4"]}
EXAMPLES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))}
RELEASE, NAMESPACE = "demo", "queues"
FULLNAME = "demo-pgsemaphore"


def helm(*arguments, version="Helm 4"):
    """Exit code, standard output, standard error; Helm sees no cluster."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": f"{home}/none"}
        done = subprocess.run([HELMS[version], *map(str, arguments)], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


def merged(base, over):
    """Values over values, as Helm merges them."""
    both = dict(base)
    for key, value in over.items():
        known = both.get(key)
        both[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both


def nested(path, value):
    """`a.b` and a value as values."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def values(example="default", **over):
    """The values of an example, with others over them: `database__port=1` is `database.port`."""
    found = yaml.safe_load(EXAMPLES[example].read_text()) if example else {}
    for path, value in over.items():
        found = merged(found, nested(path.replace("__", "."), value))
    return found


@functools.cache
def _template(text, version, arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return helm("template", RELEASE, CHART, "-n", NAMESPACE, "-f", file.name, *arguments, version=version)


def template(chosen, version="Helm 4", arguments=()):
    """Exit code, manifests, message."""
    return _template(yaml.safe_dump(chosen), version, tuple(arguments))


class Manifests:
    """The objects of a render."""

    def __init__(self, text):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.all = [document for document in yaml.load_all(text, loader) if document]

    def kind(self, kind):
        return [found for found in self.all if found["kind"] == kind]

    def one(self, kind, name=None):
        found = [each for each in self.kind(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
        return found[0]

    @property
    def holder_pod(self):
        return self.one("Deployment")["spec"]["template"]

    @property
    def holder(self):
        return self.holder_pod["spec"]["containers"][0]

    @property
    def migrate_pod(self):
        return self.one("Job")["spec"]["template"]

    @property
    def migrate_steps(self):
        """Containers of the Job, in the order in which they run."""
        spec = self.migrate_pod["spec"]
        return spec.get("initContainers", []) + spec["containers"]

    @property
    def pods(self):
        return [self.holder_pod] + [job["spec"]["template"] for job in self.kind("Job")]


def render(example="default", version="Helm 4", **over):
    """The manifests of an example, which must render."""
    code, out, message = template(values(example, **over), version)
    assert code == 0, message
    return Manifests(out)


def environment(container):
    """The variables of a container that have a value."""
    return {each["name"]: each["value"] for each in container.get("env", []) if "value" in each}
