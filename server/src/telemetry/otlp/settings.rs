//! What the variables `OTEL_*` say that the SDK does not look at itself: which signals are sent, and how.

use crate::live::Unusable;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

/// How it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    /// Protobuf over HTTP.
    Http,
}

/// The way to a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) protocol: Protocol,
    /// By `https`.
    pub(super) encrypted: bool,
}

/// The environment, or one of a test.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Signal {
    pub(super) const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    /// How to send this signal; none: it is not sent.
    pub(super) fn way(self, variables: Variables<'_>) -> Result<Option<Way>, Unusable> {
        let name = self.name();
        let said = |variable: &str| variables(variable).filter(|value| !value.is_empty());
        let either = |what: &str| {
            said(&format!("OTEL_EXPORTER_OTLP_{name}_{what}"))
                .or_else(|| said(&format!("OTEL_EXPORTER_OTLP_{what}")))
        };
        let disabled = said("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let exporter = format!("OTEL_{name}_EXPORTER");
        match said(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(_) => return Err(Unusable::new(exporter, "it must be otlp or none")),
        }
        let Some(endpoint) = either("ENDPOINT").filter(|_| !disabled) else { return Ok(None) };
        let protocol = match either("PROTOCOL").as_deref() {
            Some("grpc") => Protocol::Grpc,
            None | Some("http/protobuf") => Protocol::Http,
            Some(_) => {
                let variables = format!("OTEL_EXPORTER_OTLP_PROTOCOL or OTEL_EXPORTER_OTLP_{name}_PROTOCOL");
                return Err(Unusable::new(variables, "it must be grpc or http/protobuf"));
            }
        };
        // The exporters read it themselves, and would pass over what they can't do.
        if either("COMPRESSION").is_some_and(|way| !["none", "gzip"].contains(&way.as_str())) {
            let variables =
                format!("OTEL_EXPORTER_OTLP_COMPRESSION or OTEL_EXPORTER_OTLP_{name}_COMPRESSION");
            return Err(Unusable::new(variables, "it must be gzip or none"));
        }
        for what in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if either(what).is_some() {
                let variables = format!("OTEL_EXPORTER_OTLP_{what} or OTEL_EXPORTER_OTLP_{name}_{what}");
                return Err(Unusable::new(variables, "no certificate can be shown to a collector: unset it"));
            }
        }
        let certificate = format!("OTEL_EXPORTER_OTLP_{name}_CERTIFICATE");
        if said(&certificate).is_some() {
            let why = "collectors of all signals are trusted alike: set OTEL_EXPORTER_OTLP_CERTIFICATE";
            return Err(Unusable::new(certificate, why));
        }
        Ok(Some(Way { protocol, encrypted: endpoint.starts_with("https:") }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocol, Signal};

    fn protocols(variables: &[(&str, &str)]) -> Result<Vec<Option<Protocol>>, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let protocols = Signal::ALL.into_iter().map(|signal| signal.way(&find));
        let protocols = protocols.map(|way| way.map(|way| way.map(|way| way.protocol)));
        protocols.collect::<Result<_, _>>().map_err(|error| error.place)
    }

    #[test]
    fn without_an_endpoint_nothing_is_sent_and_each_signal_may_have_its_own() {
        use Protocol::{Grpc, Http};
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (variables, expected) in [
            (&[][..], [None, None, None]),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], [None, None, None]),
            (&[endpoint], [Some(Http), Some(Http), Some(Http)]),
            (&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], [None, None, None]),
            (
                &[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_LOGS_EXPORTER", "none")],
                [Some(Grpc), Some(Grpc), None],
            ),
            (
                &[
                    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "x"),
                    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
                ],
                [Some(Grpc), None, None],
            ),
        ] {
            assert_eq!(protocols(variables), Ok(expected.to_vec()), "{variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let refused = protocols(&[("OTEL_METRICS_EXPORTER", "prometheus")]);
        assert_eq!(refused, Err("OTEL_METRICS_EXPORTER".to_owned()));
        let refused = protocols(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
        assert!(refused.is_err_and(|place| place.contains("PROTOCOL")));
        let refused = protocols(&[endpoint, ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")]);
        assert!(refused.is_err_and(|place| place.contains("COMPRESSION")));
        for what in ["CLIENT_CERTIFICATE", "TRACES_CLIENT_KEY", "LOGS_CERTIFICATE"] {
            let refused = protocols(&[endpoint, (&format!("OTEL_EXPORTER_OTLP_{what}"), "file.pem")]);
            assert!(refused.is_err_and(|place| place.contains(what)), "{what}");
        }
    }
}
