"""Alerts and dashboard."""

import collections
import re
import unittest

import kit
import monitoring

# What a holder exports, with its labels. A histogram has `le` besides.
EXPORTED = {
    "pgsemaphore_rounds_total": {"kind", "outcome"},
    "pgsemaphore_transaction_phase_seconds": {"kind", "phase", "le"},
    "pgsemaphore_function_failures_total": {"field"},
    "pgsemaphore_requests_total": {"call", "status"},
    "pgsemaphore_request_seconds": {"call", "le"},
    "pgsemaphore_waiting_requests": set(),
    "pgsemaphore_parked_calls": set(),
    "pgsemaphore_wait_seconds": {"le"},
    "pgsemaphore_permits_granted_total": set(),
    "pgsemaphore_permits_claimed_total": set(),
    "pgsemaphore_permits_released_total": set(),
    "pgsemaphore_permits_reclaimed_total": set(),
    "pgsemaphore_leases_issued_total": set(),
    "pgsemaphore_leased_permits_total": set(),
    "pgsemaphore_leases_retired_total": {"reason"},
    "pgsemaphore_transaction_retries_total": {"reason"},
    "pgsemaphore_blocked_demand_total": {"reason"},
    "pgsemaphore_unheard_permits": set(),
    "pgsemaphore_drift_counters": set(),
    "pgsemaphore_audited_keys_total": set(),
    "pgsemaphore_database_connections": {"state"},
    "pgsemaphore_database_up": set(),
    "pgsemaphore_live_holders": set(),
    "pgsemaphore_active_keys": set(),
    "pgsemaphore_forwarded_calls_total": {"outcome"},
    "pgsemaphore_check_violations_total": set(),
    "pgsemaphore_panics_total": {"task"},
    "pgsemaphore_build_info": {"version"},
    "pgsemaphore_key_limit": {"key"},
    "pgsemaphore_key_permits": {"key", "kind"},
    "pgsemaphore_key_contended": {"key"},
}
# Those that Prometheus adds.
TARGET = {"job", "namespace", "pod", "instance"}


class Metrics(unittest.TestCase):
    def test_only_metrics_that_a_holder_exports_are_used(self):
        self.assertEqual(monitoring.metrics() - EXPORTED.keys(), set())

    def test_all_metrics_that_a_holder_exports_are_shown(self):
        self.assertEqual(EXPORTED.keys() - monitoring.metrics(), set())

    def test_only_labels_that_they_have_are_used(self):
        for place, expression in monitoring.expressions():
            with self.subTest(place=place):
                known = set(TARGET)
                for name in monitoring.NAME.findall(expression):
                    known |= EXPORTED[monitoring.SUFFIX.sub("", name)]
                    matchers = re.search(re.escape(name) + r"\{([^}]*)\}", expression)
                    used = re.findall(r'(\w+)[=!]~?"', matchers[1]) if matchers else []
                    self.assertLessEqual(set(used), EXPORTED[monitoring.SUFFIX.sub("", name)] | TARGET)
                for by in re.findall(r"\bby \(([^)]*)\)", expression):
                    self.assertLessEqual({label.strip() for label in by.split(",")}, known)

    def test_parentheses_and_braces_are_balanced(self):
        for place, expression in monitoring.expressions():
            for pair in ("()", "{}", "[]"):
                self.assertEqual(expression.count(pair[0]), expression.count(pair[1]), place)


class Alerts(unittest.TestCase):
    operations = (kit.ROOT / "docs/operations.md").read_text()

    def test_each_is_explained_where_its_link_goes(self):
        headings = {line.lstrip("# ").lower() for line in self.operations.splitlines() if line.startswith("#")}
        for rule in monitoring.rules():
            link, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            self.assertEqual(link, "docs/operations.md")
            self.assertIn(anchor, headings)

    def test_nothing_is_explained_that_is_not_an_alert(self):
        explained = set(re.findall(r"^### (Pgsemaphore\w+)$", self.operations, re.MULTILINE))
        self.assertEqual(explained, {rule["alert"] for rule in monitoring.rules()})

    def test_they_concern_this_release_only(self):
        for rule in monitoring.rules():
            for name in monitoring.NAME.findall(rule["expr"]):
                scoped = f'{name}{{job="{kit.FULLNAME}",namespace="{kit.NAMESPACE}"'
                self.assertIn(scoped, rule["expr"])

    def test_one_can_be_left_out_and_others_added(self):
        rules = kit.render("everything").one("PrometheusRule")["spec"]["groups"][0]["rules"]
        names = [rule.get("alert") for rule in rules]
        self.assertNotIn("PgsemaphoreTooManyWait", names)
        self.assertEqual(rules[-1]["record"], "pgsemaphore:waiting_requests:sum")
        self.assertEqual(rules[0]["labels"]["team"], "queues")


class Dashboard(unittest.TestCase):
    def test_panels_have_ids_of_their_own_and_do_not_overlap(self):
        panels = monitoring.dashboard()["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        cells = collections.Counter()
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    cells[x, y] += 1
        self.assertEqual(set(cells.values()), {1})

    def test_variables_that_are_used_are_there(self):
        board = monitoring.dashboard()
        known = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval", "__range"}
        for place, expression in monitoring.expressions():
            self.assertLessEqual(set(re.findall(r"\$(\w+)", expression)) - {"labels", "value"}, known, place)

    def test_each_panel_says_what_it_shows(self):
        for panel in monitoring.dashboard()["panels"]:
            if panel["type"] != "row":
                self.assertTrue(panel["description"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
