"""All manifests are what Kubernetes, Helm and the Prometheus operator take."""

import tempfile
import unittest

import kubernetes_validate
import yaml

import kit
from kit import render

KUBERNETES = ["1.25", "1.31", "1.37"]
# Kinds of the Prometheus operator: not Kubernetes' own, so their shapes are checked here.
OPERATOR = "monitoring.coreos.com/v1"


class Manifests(unittest.TestCase):
    def test_they_are_valid_for_three_versions_of_kubernetes(self):
        for example in kit.EXAMPLES:
            for found in render(example).all:
                if found["apiVersion"] == OPERATOR:
                    continue
                for version in KUBERNETES:
                    with self.subTest(example=example, kind=found["kind"], version=version):
                        kubernetes_validate.validate(found, version, strict=True)

    def test_a_mistake_would_be_noticed(self):
        found = render().one("Deployment")
        found["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(found, KUBERNETES[0], strict=True)

    def test_lint_finds_nothing(self):
        for example, path in kit.EXAMPLES.items():
            for version in kit.HELMS:
                with self.subTest(example=example, version=version):
                    code, out, message = kit.helm("lint", "--strict", kit.CHART, "-f", path, version=version)
                    self.assertEqual(code, 0, out + message)

    def test_no_object_is_there_twice(self):
        for example in kit.EXAMPLES:
            names = [(found["kind"], found["metadata"]["name"]) for found in render(example).all]
            self.assertEqual(len(names), len(set(names)))

    def test_older_clusters_are_refused(self):
        for version in kit.HELMS:
            code, _, message = kit.template(kit.values(), version, ["--kube-version", "1.24.0"])
            self.assertEqual(code, 1)
            self.assertIn("1.25", message)
            code, _, message = kit.template(kit.values(), version, ["--kube-version", "1.29.3-gke.100"])
            self.assertEqual(code, 0, message)


class OfTheOperator(unittest.TestCase):
    def test_a_service_monitor_scrapes_the_clients_service_once(self):
        found = render(metrics__serviceMonitor={"enabled": True})
        monitor = found.one("ServiceMonitor")
        self.assertEqual(monitor["apiVersion"], OPERATOR)
        self.assertEqual(monitor["spec"].keys(), {"selector", "endpoints"})
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [each["metadata"]["name"] for each in found.kind("Service") if selector <= each["metadata"]["labels"].items()]
        self.assertEqual(chosen, [kit.FULLNAME])
        (endpoint,) = monitor["spec"]["endpoints"]
        self.assertEqual(
            endpoint,
            {
                "port": "http",
                "path": "/metrics",
                "scheme": "http",
                "interval": "30s",
                "authorization": {"type": "Bearer", "credentials": {"name": "pgsemaphore-tokens", "key": "reader"}},
            },
        )
        (port,) = found.one("Service", kit.FULLNAME)["spec"]["ports"]
        self.assertEqual(port["name"], endpoint["port"])

    def test_a_service_monitor_has_no_token_where_there_are_none(self):
        monitor = render("insecure", metrics__serviceMonitor__enabled=True).one("ServiceMonitor")
        self.assertNotIn("authorization", monitor["spec"]["endpoints"][0])

    def test_a_token_of_its_own_goes_before(self):
        token = {"name": "prometheus", "key": "token"}
        monitor = render(metrics__serviceMonitor={"enabled": True, "tokenSecret": token}).one("ServiceMonitor")
        self.assertEqual(monitor["spec"]["endpoints"][0]["authorization"]["credentials"], token)

    def test_a_service_monitor_verifies_the_holders(self):
        (endpoint,) = render("everything").one("ServiceMonitor")["spec"]["endpoints"]
        self.assertEqual(endpoint["scheme"], "https")
        self.assertEqual(endpoint["tlsConfig"]["serverName"], "demo-pgsemaphore.queues.svc")
        self.assertEqual(endpoint["tlsConfig"]["ca"], {"secret": {"name": "pgsemaphore-tls", "key": "ca.crt"}})
        self.assertEqual(endpoint["tlsConfig"]["cert"]["secret"]["name"], "prometheus-client")
        self.assertEqual((endpoint["scrapeTimeout"], len(endpoint["relabelings"])), ("10s", 1))

    def test_rules_have_the_shape_that_the_operator_wants(self):
        for example in ("default", "everything"):
            rule = render(example, metrics__prometheusRule__enabled=True).one("PrometheusRule")
            self.assertEqual(rule["apiVersion"], OPERATOR)
            self.assertEqual(rule["spec"].keys(), {"groups"})
            (group,) = rule["spec"]["groups"]
            self.assertEqual(group.keys(), {"name", "rules"})
            for each in group["rules"]:
                if "record" in each:
                    continue
                self.assertEqual(each.keys(), {"alert", "expr", "for", "labels", "annotations"})
                self.assertRegex(each["for"], r"^\d+[mh]$")
                self.assertIn(each["labels"]["severity"], {"critical", "warning"})
                self.assertEqual(each["annotations"].keys(), {"summary", "runbook_url"})
                self.assertNotIn("$scope", each["expr"])
                self.assertNotIn("$connections", each["expr"])

    def test_labels_by_which_they_are_found_are_there(self):
        found = render("everything")
        for kind in ("ServiceMonitor", "PrometheusRule"):
            self.assertEqual(found.one(kind)["metadata"]["labels"]["release"], "prometheus")
        dashboard = found.one("ConfigMap", "demo-pgsemaphore-dashboard")["metadata"]
        self.assertEqual(dashboard["labels"]["grafana_dashboard"], "1")
        self.assertEqual(dashboard["annotations"]["grafana_folder"], "Queues")


class Notes(unittest.TestCase):
    """Helm 4 shows them without a cluster."""

    def notes(self, example, **over):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(yaml.safe_dump(kit.values(example, **over)))
            file.flush()
            code, out, message = kit.helm(
                "install", kit.RELEASE, kit.CHART, "-n", kit.NAMESPACE, "-f", file.name, "--dry-run=client", "--hide-secret"
            )
        self.assertEqual(code, 0, message)
        return out.partition("NOTES:")[2]

    def test_they_say_how_to_reach_a_holder_and_what_comes_next(self):
        notes = self.notes("default")
        self.assertIn("http://demo-pgsemaphore.queues.svc:7432", notes)
        self.assertIn("pgsemaphore policy set", notes)
        self.assertIn("https://demo-pgsemaphore.queues.svc:7432", self.notes("everything"))

    def test_they_say_what_is_not_safe(self):
        notes = self.notes("insecure")
        for word in ("There are no tokens", "sslmode prefer", "A password is in the release's values", "NetworkPolicy"):
            self.assertIn(word, notes)
        self.assertIn("Tokens travel unencrypted", self.notes("default"))
        self.assertNotIn("What is not safe", self.notes("everything"))

    def test_they_hold_no_secret(self):
        self.assertNotIn("s3cr3t", self.notes("insecure", database__password="s3cr3t"))
