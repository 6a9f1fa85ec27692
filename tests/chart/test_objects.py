"""What is in a release: which objects, and how they refer to each other."""

import pathlib
import re
import shutil
import tarfile
import tempfile
import unittest

import yaml

import kit
from kit import render

# Optional parts: how they are switched on, and what is there then.
OPTIONAL = [
    ("podDisruptionBudget.enabled", "PodDisruptionBudget", "demo-pgsemaphore"),
    ("networkPolicy.enabled", "NetworkPolicy", "demo-pgsemaphore"),
    ("metrics.serviceMonitor.enabled", "ServiceMonitor", "demo-pgsemaphore"),
    ("metrics.prometheusRule.enabled", "PrometheusRule", "demo-pgsemaphore"),
    ("dashboards.enabled", "ConfigMap", "demo-pgsemaphore-dashboard"),
    ("migrations.enabled", "Job", None),
    ("serviceAccount.create", "ServiceAccount", "demo-pgsemaphore"),
]


class Objects(unittest.TestCase):
    def test_a_default_install_has_what_runs_holders_and_nothing_optional(self):
        kinds = sorted(found["kind"] for found in render().all)
        self.assertEqual(kinds, ["Deployment", "Job", "Service", "Service", "ServiceAccount"])

    def test_each_optional_part_is_there_if_and_only_if_it_is_switched_on(self):
        for path, kind, name in OPTIONAL:
            for version in kit.HELMS:
                with self.subTest(path=path, version=version):
                    on = render(version=version, **{path.replace(".", "__"): True})
                    on.one(kind, name)
                    off = render(version=version, **{path.replace(".", "__"): False})
                    names = [found["metadata"]["name"] for found in off.kind(kind)]
                    self.assertEqual(names, [])

    def test_all_parts_are_there_together(self):
        kinds = {found["kind"] for found in render("everything").all}
        self.assertEqual(kinds, {"Deployment", "Job", "Service", "ServiceAccount", "ConfigMap"} | {kind for _, kind, _ in OPTIONAL})

    def test_nothing_is_a_hook(self):
        for example in kit.EXAMPLES:
            for found in render(example).all:
                self.assertNotIn("helm.sh/hook", found["metadata"].get("annotations", {}))

    def test_names_are_the_releases_and_fit(self):
        for over, fullname in [
            ({}, "demo-pgsemaphore"),
            ({"nameOverride": "budget"}, "demo-budget"),
            ({"fullnameOverride": "budget"}, "budget"),
            ({"fullnameOverride": "a" * 80}, "a" * 45),
        ]:
            with self.subTest(fullname=fullname):
                found = render("everything", **over)
                self.assertEqual(found.one("Deployment")["metadata"]["name"], fullname)
                for each in found.all:
                    self.assertLessEqual(len(each["metadata"]["name"]), 63)

    def test_services_and_budget_select_holders_only(self):
        found = render("everything")
        holder = found.holder_pod["metadata"]["labels"]
        job = found.migrate_pod["metadata"]["labels"]
        selectors = [service["spec"]["selector"] for service in found.kind("Service")]
        selectors += [found.one(kind)["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
        for selector in selectors:
            self.assertLessEqual(selector.items(), holder.items())
            self.assertFalse(selector.items() <= job.items())

    def test_holders_find_each_other_before_they_are_ready(self):
        service = render().one("Service", "demo-pgsemaphore-holders")["spec"]
        self.assertEqual((service["clusterIP"], service["publishNotReadyAddresses"]), ("None", True))

    def test_three_replicas_are_three(self):
        self.assertEqual(render("three-replicas").one("Deployment")["spec"]["replicas"], 3)

    def test_a_drain_is_never_forbidden(self):
        for replicas in (1, 2, 3):
            budget = render(podDisruptionBudget__enabled=True, replicaCount=replicas).one("PodDisruptionBudget")["spec"]
            self.assertEqual(budget["maxUnavailable"], 1)
            self.assertNotIn("minAvailable", budget)

    def test_the_chart_can_be_part_of_another(self):
        with tempfile.TemporaryDirectory() as parent:
            shutil.copytree(kit.CHART, f"{parent}/charts/pgsemaphore")
            condition = [{"name": "pgsemaphore", "version": "*", "condition": "pgsemaphore.enabled"}]
            chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": condition}
            pathlib.Path(parent, "Chart.yaml").write_text(yaml.safe_dump(chart))
            own = {"global": {"anything": 1}, "pgsemaphore": kit.values("everything", enabled=True)}
            pathlib.Path(parent, "values.yaml").write_text(yaml.safe_dump(own))
            for version in kit.HELMS:
                code, out, message = kit.helm("template", kit.RELEASE, parent, version=version)
                self.assertEqual(code, 0, message)
                self.assertIn("kind: Deployment", out)

    def test_a_package_has_no_examples_and_installs(self):
        with tempfile.TemporaryDirectory() as folder:
            for version in kit.HELMS:
                code, out, message = kit.helm("package", kit.CHART, "-d", folder, version=version)
                self.assertEqual(code, 0, message)
                (package,) = pathlib.Path(folder).glob("pgsemaphore-*.tgz")
                with tarfile.open(package) as files:
                    self.assertEqual([name for name in files.getnames() if "/ci/" in name], [])
                example = kit.EXAMPLES["default"]
                code, out, message = kit.helm("template", kit.RELEASE, package, "-f", example, version=version)
                self.assertEqual(code, 0, message)

    def test_the_command_of_the_readme_installs(self):
        readme = (kit.CHART / "README.md").read_text()
        command = re.search(r"helm install (\w+) helm/pgsemaphore (-n \w+) --wait ([^`]+)```", readme)
        arguments = command[3].replace("\\\n", " ").split()
        for version in kit.HELMS:
            code, _, message = kit.helm("template", command[1], kit.CHART, *command[2].split(), *arguments, version=version)
            self.assertEqual(code, 0, message)

    def test_what_users_add_is_there(self):
        found = render("everything")
        for each in found.all:
            self.assertEqual(each["metadata"]["labels"]["team"], "queues")
        for pod in found.pods:
            spec = pod["spec"]
            self.assertEqual(spec["imagePullSecrets"], [{"name": "registry"}])
            self.assertEqual(spec["nodeSelector"], {"kubernetes.io/os": "linux"})
            self.assertEqual(spec["priorityClassName"], "high")
            self.assertEqual(len(spec["tolerations"]), 1)
            self.assertIn("podAntiAffinity", spec["affinity"])
            self.assertIn({"name": "scratch", "emptyDir": {}}, spec["volumes"])
            for container in spec.get("initContainers", []) + spec["containers"]:
                self.assertTrue(container["image"].startswith("registry.example/pgsemaphore@sha256:"))
                self.assertIn({"name": "scratch", "mountPath": "/tmp"}, container["volumeMounts"])
                self.assertEqual(kit.environment(container)["PGSEMAPHORE_FORGET_AFTER"], "5m")
        self.assertEqual(found.holder_pod["metadata"]["labels"]["team"], "queues")
        self.assertEqual(found.holder_pod["metadata"]["annotations"]["note"], "holders")
        self.assertEqual(found.migrate_pod["metadata"]["labels"]["sidecar.istio.io/inject"], "false")
        self.assertEqual(found.holder["lifecycle"].keys(), {"preStop", "postStart"})


class ServiceAccounts(unittest.TestCase):
    def test_all_pods_use_the_one_that_is_there(self):
        for over, name in [
            ({}, "demo-pgsemaphore"),
            ({"serviceAccount__name": "mine"}, "mine"),
            ({"serviceAccount__create": False}, "default"),
            ({"serviceAccount": {"create": False, "name": "theirs"}}, "theirs"),
        ]:
            with self.subTest(name=name):
                found = render(**over)
                self.assertEqual({pod["spec"]["serviceAccountName"] for pod in found.pods}, {name})
                created = [each["metadata"]["name"] for each in found.kind("ServiceAccount")]
                self.assertEqual(created, [name] if name in ("demo-pgsemaphore", "mine") else [])

    def test_no_pod_gets_a_token_of_kubernetes(self):
        found = render()
        for spec in [found.one("ServiceAccount")] + [pod["spec"] for pod in found.pods]:
            self.assertIs(spec["automountServiceAccountToken"], False)


class NetworkPolicies(unittest.TestCase):
    def policy(self, **over):
        return render(networkPolicy__enabled=True, **over).one("NetworkPolicy")["spec"]

    @staticmethod
    def ports(rule):
        return [port["port"] for port in rule.get("ports", [])]

    def test_it_concerns_holders_and_the_job(self):
        found = render(networkPolicy__enabled=True)
        selector = found.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
        for pod in found.pods:
            self.assertLessEqual(selector.items(), pod["metadata"]["labels"].items())

    def test_dns_database_and_other_holders_are_reached_and_nothing_else(self):
        policy = self.policy()
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        self.assertEqual([self.ports(rule) for rule in policy["egress"]], [[53, 53], [5432], [7432]])
        self.assertIn("podSelector", policy["egress"][2]["to"][0])

    def test_pods_of_the_namespace_and_other_holders_may_call(self):
        policy = self.policy()
        self.assertEqual(policy["ingress"][0]["from"], [{"podSelector": {}}])
        self.assertEqual([self.ports(rule) for rule in policy["ingress"]], [[7432], [7432]])

    def test_without_named_clients_everybody_may_call(self):
        self.assertNotIn("from", self.policy(networkPolicy__clients=[])["ingress"][0])

    def test_pooler_and_database_are_both_reached(self):
        found = render("three-replicas", networkPolicy__enabled=True).one("NetworkPolicy")["spec"]
        self.assertEqual(self.ports(found["egress"][1]), [6432, 5432])

    def test_collector_prometheus_and_more_rules_are_added(self):
        policy = render("everything").one("NetworkPolicy")["spec"]
        self.assertEqual([self.ports(rule) for rule in policy["egress"]], [[53, 53], [5432], [7432], [4317, 4318], []])
        self.assertEqual(policy["egress"][1]["to"], [{"ipBlock": {"cidr": "10.0.0.0/8"}}])
        self.assertEqual([self.ports(rule) for rule in policy["ingress"]], [[7432], [7432], [7432], []])


