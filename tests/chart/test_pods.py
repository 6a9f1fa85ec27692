"""How pods run: their security, their probes, what rolls them, and what they are told."""

import re
import unittest

import kit
from kit import environment, render


def containers(found):
    for pod in found.pods:
        yield from pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


class Security(unittest.TestCase):
    def test_pods_satisfy_the_restricted_standard(self):
        for example in kit.EXAMPLES:
            found = render(example)
            for pod in found.pods:
                security = pod["spec"]["securityContext"]
                self.assertIs(security["runAsNonRoot"], True)
                self.assertGreater(security["runAsUser"], 0)
                self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys())
            for container in containers(found):
                security = container["securityContext"]
                self.assertIs(security["allowPrivilegeEscalation"], False)
                self.assertIs(security["readOnlyRootFilesystem"], True)
                self.assertEqual(security["capabilities"], {"drop": ["ALL"]})

    def test_all_containers_have_requests_and_a_limit_of_memory(self):
        for container in containers(render("everything")):
            self.assertEqual(container["resources"]["requests"].keys(), {"cpu", "memory"})
            self.assertIn("memory", container["resources"]["limits"])

    def test_a_platform_that_chooses_users_itself_can_be_left_to_it(self):
        for version in kit.HELMS:
            found = render(version=version, podSecurityContext={"runAsUser": None, "runAsGroup": None, "fsGroup": None})
            for pod in found.pods:
                self.assertEqual(pod["spec"]["securityContext"].keys(), {"runAsNonRoot", "seccompProfile"})

    def test_no_pod_has_variables_of_services_among_those_of_the_server(self):
        for pod in render().pods:
            self.assertIs(pod["spec"]["enableServiceLinks"], False)

    def test_secrets_are_files_that_only_the_pod_reads(self):
        for pod in render("everything").pods:
            secrets = [volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume]
            self.assertTrue(secrets)
            for secret in secrets:
                self.assertEqual(secret["defaultMode"], 0o440)

    def test_only_the_keys_that_are_used_are_mounted_and_never_by_subpath(self):
        found = render("everything")
        tokens = next(volume for volume in found.holder_pod["spec"]["volumes"] if volume["name"] == "tokens")
        self.assertEqual({item["key"] for item in tokens["secret"]["items"]}, {"client", "reader", "admin", "holder"})
        for container in containers(found):
            for mount in container["volumeMounts"]:
                self.assertNotIn("subPath", mount)

    def test_each_mount_has_its_volume(self):
        for example in kit.EXAMPLES:
            for pod in render(example).pods:
                volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
                for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
                    mounts = container.get("volumeMounts", [])
                    self.assertLessEqual({mount["name"] for mount in mounts}, volumes)
                    for value in environment(container).values():
                        if value.startswith("/etc/"):
                            folder = value.rpartition("/")[0]
                            self.assertIn(folder, {mount["mountPath"] for mount in mounts})


class Probes(unittest.TestCase):
    def test_liveness_does_not_ask_the_database_and_readiness_does(self):
        holder = render().holder
        paths = {name: holder[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
        self.assertEqual(paths, {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"})

    def test_they_speak_as_the_holder_does(self):
        for example, scheme in (("default", "HTTP"), ("everything", "HTTPS")):
            holder = render(example).holder
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertEqual(holder[name]["httpGet"]["scheme"], scheme)
                self.assertEqual(holder[name]["httpGet"]["port"], "http")

    def test_a_holder_pauses_and_has_time_to_end(self):
        found = render()
        self.assertEqual(found.holder["lifecycle"]["preStop"], {"exec": {"command": ["sleep", "5"]}})
        self.assertEqual(found.holder_pod["spec"]["terminationGracePeriodSeconds"], 30)

    def test_a_holder_is_replaced_only_when_the_next_one_is_ready(self):
        strategy = render().one("Deployment")["spec"]["strategy"]
        self.assertEqual(strategy["rollingUpdate"], {"maxUnavailable": 0, "maxSurge": 1})

    def test_holders_are_spread_over_nodes_and_zones(self):
        found = render()
        spread = found.holder_pod["spec"]["topologySpreadConstraints"]
        self.assertEqual([each["topologyKey"] for each in spread], ["kubernetes.io/hostname", "topology.kubernetes.io/zone"])
        for each in spread:
            self.assertEqual(each["labelSelector"], found.one("Deployment")["spec"]["selector"])
            self.assertEqual(each["whenUnsatisfiable"], "ScheduleAnyway")


class Rolls(unittest.TestCase):
    """Kubernetes replaces pods when their template differs."""

    def test_an_unchanged_upgrade_changes_nothing(self):
        for example in kit.EXAMPLES:
            for version in kit.HELMS:
                renders = []
                for arguments in ([], ["--is-upgrade"]):
                    code, out, message = kit.template(kit.values(example), version, arguments)
                    self.assertEqual(code, 0, message)
                    renders.append(out)
                self.assertEqual(*renders)

    def test_both_versions_of_helm_render_the_same(self):
        for example in kit.EXAMPLES:
            self.assertEqual(render(example, "Helm 3").all, render(example, "Helm 4").all)

    def test_a_changed_password_rolls_holders_and_is_another_job(self):
        before, after = render("insecure"), render("insecure", database__password="other")
        self.assertNotEqual(after.holder_pod, before.holder_pod)
        self.assertNotEqual(after.one("Job")["metadata"]["name"], before.one("Job")["metadata"]["name"])

    def test_a_changed_value_rolls_holders(self):
        before = render().holder_pod
        for change in [
            {"database__host": "elsewhere"},
            {"database__existingSecret": "another"},
            {"auth__existingSecret": "another"},
            {"log": "debug"},
            {"image__tag": "2"},
            {"extraEnv": [{"name": "PGSEMAPHORE_FORGET_AFTER", "value": "5m"}]},
        ]:
            with self.subTest(change=change):
                self.assertNotEqual(render(**change).holder_pod, before)

    def test_what_does_not_concern_holders_does_not_roll_them(self):
        before = render().holder_pod
        for change in [
            {"replicaCount": 5},
            {"policies": {"a": {"limit": 1}}},
            {"labels": {"a": "b"}},
            {"dashboards__enabled": True},
            {"migrations__createRoles": True},
        ]:
            with self.subTest(change=change):
                self.assertEqual(render(**change).holder_pod, before)

    def test_a_job_is_another_object_if_and_only_if_it_would_differ(self):
        def job(**change):
            return render(**change).one("Job")

        before = job()
        for change in [
            {"image__tag": "2"},
            {"database__host": "elsewhere"},
            {"database__existingSecret": "another"},
            {"policies": {"a": {"limit": 1}}},
            {"migrations__backoffLimit": 3},
            {"migrations__createRoles": True},
            {"nodeSelector": {"a": "b"}},
        ]:
            with self.subTest(change=change):
                self.assertNotEqual(job(**change)["metadata"]["name"], before["metadata"]["name"])
        for change in [{"replicaCount": 5}, {"log": "info"}, {"labels": {"a": "b"}}, {"annotations": {"a": "b"}}]:
            with self.subTest(change=change):
                after = job(**change)
                self.assertEqual(after["metadata"]["name"], before["metadata"]["name"])
                self.assertEqual(after["spec"], before["spec"])
        names = {job(policies={"a": {"limit": limit}})["metadata"]["name"] for limit in range(5)}
        self.assertEqual(len(names), 5)

    def test_a_finished_job_stays_so_that_nothing_makes_it_again(self):
        self.assertNotIn("ttlSecondsAfterFinished", render().one("Job")["spec"])


class Told(unittest.TestCase):
    """What the containers are told. Whether the server understands it is tried in test_server.py."""

    def test_passwords_are_never_in_a_variable(self):
        for over in ({"database__password": "s3cr3t"}, {"database__password": "a", "database__direct": {"password": "s3cr3t"}}):
            found = render("insecure", **over)
            for pod in found.pods:
                self.assertNotIn("s3cr3t", str(pod))
            self.assertIn("czNjcjN0", str(found.one("Secret")["data"]))

    def test_the_password_is_a_file_of_the_secret_that_is_named(self):
        found = render(database={"existingSecret": "mine", "existingSecretPasswordKey": "pass"})
        for pod in found.pods:
            volume = pod["spec"]["volumes"][0]
            self.assertEqual(volume["secret"]["secretName"], "mine")
            self.assertEqual(volume["secret"]["items"], [{"key": "pass", "path": "password"}])
        for container in containers(found):
            self.assertEqual(environment(container)["PGSEMAPHORE_DATABASE_PASSWORD_FILE"], "/etc/pgsemaphore/database/password")

    def test_names_with_any_signs_are_encoded_in_the_url(self):
        found = render(database={"user": "a b@c:d", "name": "x/y?z"})
        url = environment(found.holder)["PGSEMAPHORE_DATABASE_URL"]
        self.assertEqual(url, "postgres://a%20b%40c%3Ad@postgres.databases.svc:5432/x%2Fy%3Fz?sslmode=prefer")
        for host in ("fd00::7", "[fd00::7]"):
            url = environment(render(database={"host": host}).holder)["PGSEMAPHORE_DATABASE_URL"]
            self.assertIn("@[fd00::7]:5432/", url)

    def test_holders_go_through_the_pooler_and_the_job_does_not(self):
        found = render("three-replicas", policies={"a": {"limit": 1}})
        self.assertEqual(environment(found.holder)["PGSEMAPHORE_POOLER"], "true")
        self.assertIn("@pgbouncer.databases.svc:6432/jobs", environment(found.holder)["PGSEMAPHORE_DATABASE_URL"])
        self.assertEqual([step["name"] for step in found.migrate_steps], ["migrate", "roles", "policies"])
        for step in found.migrate_steps:
            self.assertIn("//owner@postgres.databases.svc:5432/jobs", environment(step)["PGSEMAPHORE_DATABASE_URL"])
            self.assertNotIn("PGSEMAPHORE_POOLER", environment(step))
        secrets = [pod["spec"]["volumes"][0]["secret"]["secretName"] for pod in found.pods]
        self.assertEqual(secrets, ["pgsemaphore-holder", "pgsemaphore-owner"])

    def test_direct_is_as_the_other_where_nothing_is_said(self):
        for direct, url in [
            ({}, "postgres://pgsemaphore@postgres.databases.svc:5432/pgsemaphore?sslmode=prefer"),
            ({"user": "owner"}, "postgres://owner@postgres.databases.svc:5432/pgsemaphore?sslmode=prefer"),
            ({"host": "h", "port": 1}, "postgres://pgsemaphore@h:1/pgsemaphore?sslmode=prefer"),
            ({"url": "postgres://o@h/d?sslmode=require"}, "postgres://o@h/d?sslmode=require"),
        ]:
            found = render(database={"direct": direct})
            self.assertEqual(environment(found.migrate_steps[0])["PGSEMAPHORE_DATABASE_URL"], url)

    def test_a_url_is_passed_as_it_is(self):
        url = "postgres://me@h:1/d?sslmode=require&application_name=x"
        found = render(database={"host": None, "url": url})
        for container in containers(found):
            self.assertEqual(environment(container)["PGSEMAPHORE_DATABASE_URL"], url)

    def test_a_scope_without_a_key_has_no_tokens(self):
        holder = render(auth__keys={"reader": "", "admin": "token", "client": "token"}).holder_pod
        names = environment(holder["spec"]["containers"][0])
        self.assertNotIn("PGSEMAPHORE_READER_TOKEN_FILE", names)
        tokens = next(volume for volume in holder["spec"]["volumes"] if volume["name"] == "tokens")
        items = sorted((item["path"], item["key"]) for item in tokens["secret"]["items"])
        self.assertEqual(items, [("admin", "token"), ("client", "token"), ("holder", "holder")])

    def test_other_holders_call_by_address_or_by_name_if_names_are_verified(self):
        self.assertEqual(environment(render().holder)["PGSEMAPHORE_ADVERTISE_URL"], "http://$(POD_IP):7432")
        self.assertEqual(environment(render(ipv6=True).holder)["PGSEMAPHORE_ADVERTISE_URL"], "http://[$(POD_IP)]:7432")
        named = render("everything", holders__advertiseUrl="https://$(POD_NAME).x:1").holder
        self.assertEqual(environment(named)["PGSEMAPHORE_ADVERTISE_URL"], "https://$(POD_NAME).x:1")
        self.assertEqual(named["args"], ["serve"])
        script = render("everything").holder["args"][0]
        self.assertIn(".demo-pgsemaphore-holders.$NAMESPACE.svc:7432", script)

    def test_variables_that_others_refer_to_come_first(self):
        for example in kit.EXAMPLES:
            seen = set()
            for each in render(example).holder["env"]:
                self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", each.get("value", ""))), seen)
                seen.add(each["name"])

    def test_policies_are_a_file_that_the_job_applies_last(self):
        found = render("everything")
        policies = found.one("ConfigMap", "demo-pgsemaphore-policies")["data"]["policies.json"]
        self.assertIn('"account:*":{"group_limits":{"nightly":5},"limit":100}', policies)
        self.assertEqual(found.migrate_steps[-1]["args"][-2:], ["/etc/pgsemaphore/policies/policies.json", "--force"])
        alone = render(migrations__enabled=False, policies={"a": {"limit": 2147483647}})
        self.assertEqual([step["name"] for step in alone.migrate_steps], ["policies"])
        self.assertIn('"limit":2147483647}', alone.one("ConfigMap")["data"]["policies.json"])
