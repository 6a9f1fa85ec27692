"""The names of metrics that alerts and dashboard use, for whoever compares them with what a holder exports."""

import json
import re

from kit import render

NAME = re.compile(r"\bpgsemaphore_[a-z_]+")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def rules():
    """All alerts, as rendered."""
    rule = render(metrics__prometheusRule__enabled=True).one("PrometheusRule")
    return rule["spec"]["groups"][0]["rules"]


def dashboard():
    """The dashboard, as rendered."""
    (text,) = render(dashboards__enabled=True).one("ConfigMap")["data"].values()
    return json.loads(text)


def expressions():
    """Every query, with where it is."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if isinstance(variable["query"], dict):
            yield variable["name"], variable["query"]["query"]


def metrics():
    """Names of metrics, those of a histogram without its suffix."""
    return {SUFFIX.sub("", name) for _, expression in expressions() for name in NAME.findall(expression)}
