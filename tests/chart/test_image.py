"""The image: what goes into it, and that it is the one which the chart runs. It is built where there is a Docker."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

import yaml

import kit

DOCKERFILE = (kit.ROOT / "server/Dockerfile").read_text()
WORKSPACE = tomllib.loads((kit.ROOT / "Cargo.toml").read_text())["workspace"]


def context():
    """Top-level paths that `.dockerignore` lets through."""
    lines = (kit.ROOT / ".dockerignore").read_text().splitlines()
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


class Image(unittest.TestCase):
    def test_chart_image_and_workspace_have_one_version(self):
        chart = yaml.safe_load((kit.CHART / "Chart.yaml").read_text())
        version = WORKSPACE["package"]["version"]
        self.assertEqual(chart["appVersion"], version)
        self.assertIn(f"ARG VERSION={version}\n", DOCKERFILE)
        self.assertEqual(kit.render().holder["image"], f"pgsemaphore:{version}")

    def test_it_is_built_by_the_rust_of_the_repository(self):
        toolchain = tomllib.loads((kit.ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
        self.assertIn(f"ARG RUST={toolchain}\n", DOCKERFILE)

    def test_user_and_port_are_those_of_the_chart(self):
        found = kit.render()
        security = found.holder_pod["spec"]["securityContext"]
        self.assertIn(f"USER {security['runAsUser']}:{security['runAsGroup']}\n", DOCKERFILE)
        (port,) = found.holder["ports"]
        self.assertIn(f"EXPOSE {port['containerPort']}\n", DOCKERFILE)

    def test_it_starts_what_the_chart_starts(self):
        self.assertIn('ENTRYPOINT ["pgsemaphore"]\nCMD ["serve"]\n', DOCKERFILE)
        self.assertEqual(kit.render().holder["args"], ["serve"])

    def test_what_is_included_in_the_source_is_in_the_context(self):
        allowed = [kit.ROOT / path for path in context()]
        for folder in ("server", "queue-client"):
            for source in (kit.ROOT / folder).rglob("*.rs"):
                for included in re.findall(r'(?<!doc = )include_(?:str|bytes)!\("([^"]+)"\)', source.read_text()):
                    path = (source.parent / included).resolve()
                    self.assertTrue(any(path.is_relative_to(each) for each in allowed), f"{source} includes {path}")

    def test_cargo_finds_the_whole_workspace_in_the_context(self):
        with tempfile.TemporaryDirectory() as folder:
            # Not in the context, but rustup wants to know which cargo.
            for path in context() + ["rust-toolchain.toml"]:
                source, copy = kit.ROOT / path, pathlib.Path(folder, path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("target", "__pycache__"))
                else:
                    shutil.copy(source, copy)
            command = ["cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
