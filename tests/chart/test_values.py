"""Values that can't be used are refused, and the message says what to set."""

import json
import unittest

import yaml

import kit
from kit import nested, template, values

# Contradictions, and words of the message.
CONTRADICTIONS = [
    ({"auth": {"existingSecret": ""}}, ["auth.existingSecret", "insecure: true"]),
    ({"insecure": True}, ["auth.existingSecret and insecure: true contradict"]),
    ({"auth": {"keys": {"client": "", "admin": ""}}}, ["auth.keys.client"]),
    ({"database": {"host": ""}}, ["set database.host, or database.url"]),
    ({"database": {"url": "postgres://h/d"}}, ["database.host and database.url contradict"]),
    ({"database": {"password": "a"}}, ["database.existingSecret and database.password contradict"]),
    ({"database": {"host": "", "url": "postgres://me:pass@h/d"}}, ["database.url holds a password"]),
    ({"database": {"host": "", "url": "postgres://me@h/d?a=b&password=pass"}}, ["database.url holds a password"]),
    ({"database": {"direct": {"url": "postgres://me:pass@h/d"}}}, ["database.direct.url holds a password"]),
    ({"database": {"ca": {"existingSecret": "ca"}}}, ["set database.sslmode to verify-full"]),
    ({"database": {"direct": {"host": "h", "url": "postgres://h/d"}}}, ["database.direct.host and database.direct.url"]),
    ({"database": {"direct": {"existingSecret": "a", "password": "b"}}}, ["database.direct.existingSecret and"]),
    ({"database": {"direct": {"user": "a", "url": "postgres://h/d"}}}, ["put them into database.direct.url"]),
    ({"database": {"host": "", "url": "postgres://h/d", "direct": {"user": "a"}}}, ["put them into database.direct.url"]),
    ({"database": {"pooler": True}}, ["set database.direct.host"]),
    ({"tls": {"clientCA": {"existingSecret": "a"}}}, ["set tls.existingSecret too"]),
    ({"migrations": {"enabled": False, "createRoles": True}}, ["migrations.createRoles needs"]),
    (
        {"networkPolicy": {"enabled": True}, "database": {"host": "", "url": "postgres://h/d"}},
        ["set networkPolicy.databasePorts"],
    ),
    (
        {"networkPolicy": {"enabled": True}, "database": {"direct": {"url": "postgres://h/d"}}},
        ["set networkPolicy.databasePorts"],
    ),
    (
        {"metrics": {"serviceMonitor": {"enabled": True}}, "auth": {"keys": {"reader": ""}}},
        ["metrics.serviceMonitor.tokenSecret"],
    ),
]

# Values that the schema refuses, and the name that the message must have.
MISTYPED = [
    ("replicaCunt", 3, "replicaCunt"),
    ("replicaCount", "three", "replicaCount"),
    ("replicaCount", -1, "replicaCount"),
    ("image.tga", "1", "tga"),
    ("image.pullPolicy", "Sometimes", "pullPolicy"),
    ("image.digest", "sha256:1", "digest"),
    ("insecure", "yes", "insecure"),
    ("database.hots", "a", "hots"),
    ("database.host", "postgres://a", "host"),
    ("database.port", 70000, "port"),
    ("database.port", "5432", "port"),
    ("database.url", "mysql://h/d", "url"),
    ("database.sslmode", "verify", "sslmode"),
    ("database.direct.hots", "a", "hots"),
    ("database.existingSecret", "Not A Name", "existingSecret"),
    ("auth.existingSecrets", "a", "existingSecrets"),
    ("auth.keys.writer", "a", "writer"),
    ("tls.existingSecrets", "a", "existingSecrets"),
    ("serviceAccount.created", True, "created"),
    ("networkPolicy.enable", True, "enable"),
    ("podDisruptionBudget.minAvailable", 1, "minAvailable"),
    ("metrics.serviceMonitor.enable", True, "enable"),
    ("metrics.serviceMonitor.interval", "soon", "interval"),
    ("metrics.prometheusRule.enable", True, "enable"),
    ("dashboards.enable", True, "enable"),
    ("policies", {"a": 5}, "policies"),
    ("service.type", "Cluster", "type"),
    ("containerPort", 80, "containerPort"),
    ("livenessProbe.period", 1, "period"),
    ("podAnnotations", {"a": 1}, "podAnnotations"),
    ("extraEnv", [{"nam": "a"}], "extraEnv"),
]


def keys(tree, path=""):
    """Paths of all values, as far as the schema names them."""
    for key, value in tree.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{path}{key}.")


class Refused(unittest.TestCase):
    def test_contradictions_say_what_to_set(self):
        for change, words in CONTRADICTIONS:
            for version in kit.HELMS:
                with self.subTest(change=change, version=version):
                    code, out, message = template(kit.merged(values(), change), version)
                    self.assertEqual((code, out), (1, ""))
                    for word in words:
                        self.assertIn(word, message)
                    self.assertNotIn("pass@", message)

    def test_all_that_is_missing_is_said_at_once(self):
        for version in kit.HELMS:
            code, _, message = template({}, version)
            self.assertEqual(code, 1)
            self.assertIn("there are no tokens: set auth.existingSecret", message)
            self.assertIn("insecure: true", message)
            self.assertIn("there is no database: set database.host", message)

    def test_misspelt_and_mistyped_values_are_named(self):
        for path, value, name in MISTYPED:
            for version in kit.HELMS:
                with self.subTest(path=path, version=version):
                    code, _, message = template(kit.merged(values(), nested(path, value)), version)
                    self.assertEqual(code, 1)
                    self.assertIn(name, message)

    def test_lint_refuses_them_too(self):
        for version in kit.HELMS:
            code, out, message = kit.helm("lint", "--strict", kit.CHART, "--set", "replicaCunt=3", version=version)
            self.assertEqual(code, 1)
            self.assertIn("replicaCunt", out + message)


class Schema(unittest.TestCase):
    schema = json.loads((kit.CHART / "values.schema.json").read_text())

    def test_it_is_of_draft_7(self):
        self.assertEqual(self.schema["$schema"], "http://json-schema.org/draft-07/schema#")

    def test_every_value_with_properties_refuses_others(self):
        def visit(node):
            if isinstance(node, dict):
                if "properties" in node and "const" not in node:
                    self.assertIs(node.get("additionalProperties"), False, node)
                for each in node.values():
                    visit(each)
            elif isinstance(node, list):
                for each in node:
                    visit(each)

        visit(self.schema)

    def test_it_names_exactly_the_values_that_there_are(self):
        def named(node, path=""):
            node = self.schema["definitions"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
            for key, value in node.get("properties", {}).items():
                yield f"{path}{key}"
                yield from named(value, f"{path}{key}.")

        in_schema = set(named(self.schema)) - {"global", "enabled"}
        in_values = set(keys(yaml.safe_load((kit.CHART / "values.yaml").read_text())))
        self.assertEqual({path for path in in_schema if not path.endswith("Probe.initialDelaySeconds")} - in_values, set())
        free = {"labels", "resources", "podSecurityContext", "securityContext", "strategy", "lifecycle"}
        inside_free = {path for path in in_values if free & set(path.split(".")[:-1])}
        self.assertEqual(in_values - in_schema - inside_free, set())
