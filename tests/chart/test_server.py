"""The server runs with exactly what the chart renders: arguments, variables and files, against a real PostgreSQL."""

import itertools
import re
import subprocess
import unittest

import kit
from cluster import Authority, Container, Folder, Holder, Postgres, binary, free_port

TOKENS = {scope: f"{scope}-token\n" for scope in ("client", "reader", "admin", "holder")}
DATABASES = itertools.count()


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.postgres = Postgres()
        cls.addClassCleanup(cls.postgres.remove)

    def setUp(self):
        self.folder = Folder()
        self.addCleanup(self.folder.remove)
        self.database = f"jobs {next(DATABASES)}"
        self.postgres.sql(f'CREATE DATABASE "{self.database}"')
        self.secrets = {
            "pgsemaphore-database": {"password": self.postgres.password + "\n"},
            "pgsemaphore-owner": {"password": self.postgres.password},
            "pgsemaphore-holder": {"password": "of holders"},
            "pgsemaphore-tokens": TOKENS,
            "postgres-ca": {"ca.crt": self.postgres.authority.ca},
        }

    def render(self, example, **over):
        """A render whose database is the one of this test, and whose port is free."""
        database = kit.merged({"database": self.postgres.values(self.database)}, {"database": over.pop("database", {})})
        return kit.render(example, **database, containerPort=free_port(), **over)

    def container(self, found, pod, container):
        """A container, with the Secrets of this test and what the release itself brings."""
        own = {each["metadata"]["name"]: each["data"] for each in found.kind("ConfigMap")}
        return Container(pod, container, self.secrets | own, self.folder)

    def steps(self, found):
        return [self.container(found, found.migrate_pod, step) for step in found.migrate_steps]

    def run_job(self, found):
        """Runs the Job, which must succeed, and answers what its last step wrote."""
        for step in self.steps(found):
            code, output = step.run()
            self.assertEqual(code, 0, output)
        return output

    def serve(self, found):
        holder = Holder(self.container(found, found.holder_pod, found.holder))
        self.addCleanup(self.kill, holder.process)
        return holder

    @staticmethod
    def kill(process):
        process.kill()
        process.communicate()

    def allow_holders(self, name):
        """The login of holders, which may do no more than the role that the Job has created."""
        self.postgres.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'of holders' IN ROLE pgsemaphore_holder")
        self.addCleanup(self.postgres.sql, f"DROP ROLE {name}")


class Installs(ServerTest):
    def test_a_default_install_serves(self):
        found = self.render("default")
        self.run_job(found)
        holder = self.serve(found)
        holder.ready()
        self.assertEqual(holder.get("/v1/policies")[0], 401)
        for token in ("reader", "admin"):
            self.assertEqual(holder.get("/v1/policies", f"{token}-token")[0], 200)
        self.assertEqual(holder.end()[0], 0)

    def test_an_insecure_install_serves_everybody(self):
        found = self.render("insecure", database={"password": None, "existingSecret": "pgsemaphore-database"})
        self.run_job(found)
        holder = self.serve(found)
        holder.ready()
        self.assertEqual(holder.get("/v1/policies")[0], 200)

    def test_three_replicas_serve_behind_a_pooler_as_somebody_who_may_do_less(self):
        direct = self.postgres.values(self.database)
        found = self.render("three-replicas", database={"user": "pgsemaphore_holder", "direct": direct})
        self.run_job(found)
        self.postgres.sql("ALTER ROLE pgsemaphore_holder LOGIN PASSWORD 'of holders'")
        self.assertEqual(found.one("Deployment")["spec"]["replicas"], 3)
        for _ in range(3):
            again = self.render("three-replicas", database={"user": "pgsemaphore_holder", "direct": direct})
            self.serve(again).ready()

    def test_everything_serves_by_tls_in_both_directions(self):
        authority = Authority(self.folder.path)
        name = "demo-pgsemaphore.queues.svc"
        certificate, key = authority.certificate(f"DNS:{name}", "DNS:*.demo-pgsemaphore-holders.queues.svc")
        self.secrets["pgsemaphore-tls"] = {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.ca}
        self.secrets["pgsemaphore-clients"] = {"ca.crt": authority.ca}
        caller = [self.folder.write(file, text) for file, text in zip(("c.crt", "c.key"), authority.certificate("DNS:caller"))]

        found = self.render("everything", database={"user": "queues", "direct": {"user": "postgres"}})
        self.assertRegex(self.run_job(found), r"(?m)^account:\*: created$")
        self.allow_holders("queues")
        self.addCleanup(self.postgres.sql, "DROP OWNED BY queues", self.database)
        holder = self.serve(found)
        connected = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'queues'"
        self.assertEqual(self.postgres.sql(connected), "t")

        probe = {"ca": authority.ca, "name": name}
        self.assertEqual(holder.get("/healthz", **probe)[0], 200)
        holder.ready(**probe)
        self.assertEqual(holder.get("/v1/policies", "reader-token", **probe)[0], 401)
        status, policies = holder.get("/v1/policies", "reader-token", certificate=caller, **probe)
        self.assertEqual(status, 200)
        self.assertIn('"account:*"', policies)

        # What the shell made of the address, and that nothing of the shell is left.
        url = holder.environment()["PGSEMAPHORE_ADVERTISE_URL"]
        self.assertEqual(url, f"https://127-0-0-1.demo-pgsemaphore-holders.queues.svc:{holder.port}")
        named = url.removeprefix("https://").rpartition(":")[0]
        holder.ready(ca=authority.ca, name=named)
        self.assertEqual(holder.end()[0], 0)

    def test_holders_before_the_schema_end_and_say_why(self):
        found = self.render("default")
        code, output = self.container(found, found.holder_pod, found.holder).run()
        self.assertEqual(code, 1)
        self.assertIn("pgsemaphore migrate", output)
        self.run_job(found)
        self.serve(found).ready()

    def test_holders_log_what_the_values_say(self):
        found = self.render("default", log="debug")
        self.run_job(found)
        holder = self.serve(found)
        holder.get("/readyz")
        self.assertIn("DEBUG", holder.end()[1])


class Understood(unittest.TestCase):
    """A variable that the server does not know is ignored: so each must be one that its help names."""

    def test_each_variable_of_a_holder_is_one_of_serve(self):
        help = subprocess.run([binary(), "serve", "--help"], capture_output=True, text=True, check=True).stdout
        for example in kit.EXAMPLES:
            for name in kit.environment(kit.render(example).holder):
                with self.subTest(name=name):
                    self.assertIn(name, set(re.findall(r"\bPGSEMAPHORE_\w+", help)))

    def test_each_variable_of_the_job_is_one_of_its_commands(self):
        for example in kit.EXAMPLES:
            for step in kit.render(example, extraEnv=[]).migrate_steps:
                words = [word for word in step["args"] if re.fullmatch("[a-z]+", word)]
                help = subprocess.run([binary(), *words, "--help"], capture_output=True, text=True, check=True).stdout
                for name in kit.environment(step):
                    self.assertIn(name, set(re.findall(r"\bPGSEMAPHORE_\w+", help)))


class Migrations(ServerTest):
    def migrated(self):
        """How many migrations there are, none of which failed."""
        count = "SELECT count(*), bool_and(success) FROM pgsemaphore_data._sqlx_migrations"
        return self.postgres.sql(count, self.database)

    def test_three_at_once_all_succeed(self):
        found = self.render("default")
        processes = [step.start() for _ in range(3) for step in self.steps(found)]
        for process in processes:
            output = "".join(process.communicate(timeout=60))
            self.assertEqual(process.returncode, 0, output)
        files = len(list((kit.ROOT / "migrations").glob("*.sql")))
        self.assertEqual(self.migrated(), f"{files}|t")
        self.serve(found).ready()

    def test_a_repeated_upgrade_changes_nothing(self):
        found = self.render("default", policies={"a": {"limit": 1}, "b*": {"limit": 2}})
        self.assertEqual(self.run_job(found), "a: created\nb*: created\n")
        before = self.migrated()
        for _ in range(2):
            self.assertEqual(self.run_job(found), "a: unchanged\nb*: unchanged\n")
        changed = self.render("default", policies={"a": {"limit": 3}})
        self.assertEqual(self.run_job(changed), "a: changed\n")
        self.assertEqual(self.migrated(), before)

    def test_it_goes_on_where_a_run_before_it_failed(self):
        found = self.render("default")
        self.postgres.sql("CREATE SCHEMA pgsemaphore; CREATE TABLE pgsemaphore.usage ()", self.database)
        (step,) = self.steps(found)
        for _ in range(2):
            code, output = step.run()
            self.assertEqual(code, 1)
            self.assertIn("usage", output)
        self.postgres.sql("DROP SCHEMA pgsemaphore CASCADE", self.database)
        self.run_job(found)
        self.serve(found).ready()

    def test_it_goes_on_where_a_run_before_it_was_killed(self):
        found = self.render("default")
        (step,) = self.steps(found)
        for seconds in (0.02, 0.05, 0.1, 0.2):
            process = step.start()
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.kill(process)
        self.run_job(found)
        self.serve(found).ready()

    def test_it_succeeds_once_the_database_is_there(self):
        found = self.render("default")
        (step,) = self.steps(found)
        self.postgres.stop()
        code, output = step.run()
        self.assertEqual(code, 1)
        self.assertIn(f"127.0.0.1:{self.postgres.port}", output)
        self.postgres.start()
        self.run_job(found)

    def test_it_succeeds_once_the_secret_is_right(self):
        found = self.render("default")
        right = self.secrets["pgsemaphore-database"]
        self.secrets["pgsemaphore-database"] = {"password": "wrong"}
        code, output = self.steps(found)[0].run()
        self.assertEqual(code, 1)
        self.assertNotIn("wrong", output)
        self.secrets["pgsemaphore-database"] = right
        self.run_job(found)

    def test_a_mistake_in_a_policy_is_named_and_leaves_the_schema_migrated(self):
        found = self.render("default", policies={"a": {"limits": 1}})
        migrate, policies = self.steps(found)
        self.assertEqual(migrate.run()[0], 0)
        code, output = policies.run()
        self.assertEqual(code, 2)
        self.assertIn("limits", output)
        self.serve(found).ready()


class Runbooks(ServerTest):
    def test_statements_that_operators_are_told_to_run_can_be_run(self):
        found = self.render("default", policies={"KEY": {"limit": 1}})
        self.run_job(found)
        text = (kit.ROOT / "docs/operations.md").read_text()
        statements = re.findall(r"`(SELECT [^`]+)`", text)
        self.assertGreater(len(statements), 5)
        for statement in statements:
            with self.subTest(statement=statement):
                self.postgres.sql(statement, self.database)
