//! The fields of a policy as options of `policy set`. What a value may be is judged in one place, the SQL function
//! `pgsemaphore.configure`: here it is only told whether text, number or truth is meant.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use serde_json::{Map, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number or a truth value, as JSON writes it.
    Json,
    Text,
    /// May be given several times.
    List,
}

/// Option, kind, what to call the value, help.
const FIELDS: [(&str, Kind, &str, &str); 18] = [
    ("limit", Kind::Json, "N", "Permits in use at once; 0 stops admission"),
    ("limit-function", Kind::Text, "NAME", "SQL function (key text) returns integer that says the limit"),
    ("paused", Kind::Json, "BOOL", "Admit nothing; releases go on"),
    ("paused-groups", Kind::List, "G", "Admit nothing in this group; may be given several times"),
    ("group-limit-function", Kind::Text, "NAME", "SQL function (key text, grp text) returns integer"),
    (
        "can-grant-function",
        Kind::Text,
        "NAME",
        "SQL function (key text, client_id text, grp text) returns boolean",
    ),
    (
        "round-wait-ms",
        Kind::Json,
        "MS",
        "A round waits this long for more requests, as permits do: raise it to save transactions [default: 0]",
    ),
    (
        "round-period-ms",
        Kind::Json,
        "MS",
        "Rounds of a key start no closer than this: raise it where busy keys load the database [default: 100]",
    ),
    ("eager", Kind::Json, "BOOL", "Serve demand that fits at once while nobody else waits [default: false]"),
    ("grant-timeout-ms", Kind::Json, "MS", "Unclaimed permits come back after this [default: 10000]"),
    ("provisioning", Kind::Text, "MODE", "What leases may use: none, strict, under or over [default: none]"),
    ("lease-reserve", Kind::Json, "N", "Permits reserved for leases (under)"),
    ("lease-extra", Kind::Json, "N", "Permits for leases beyond the limit (over)"),
    ("lease-extra-ratio", Kind::Json, "RATIO", "The same as a fraction of the limit (over)"),
    ("permits-per-lease", Kind::Json, "N", "Largest lease [default: 64]"),
    ("lease-ttl-ms", Kind::Json, "MS", "A lease unreported for this long is retired [default: 1800000]"),
    ("limited-groups", Kind::Text, "WHICH", "Leases of groups with a limit: excluded or within_group_limit"),
    (
        "settle-lost-clients-after-ms",
        Kind::Json,
        "MS",
        "A client silent for this long is declared dead: at least 5000",
    ),
];

/// The fields that were given, as `pgsemaphore.configure` takes them.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyFields(pub(super) Map<String, Value>);

impl Args for PolicyFields {
    fn augment_args(command: Command) -> Command {
        FIELDS.iter().fold(command, |command, (name, kind, value_name, help)| {
            let action = if *kind == Kind::List { ArgAction::Append } else { ArgAction::Set };
            let argument = Arg::new(*name).long(*name).value_name(*value_name).help(*help);
            command.arg(argument.action(action).allow_hyphen_values(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PolicyFields {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut fields = Self::default();
        fields.update_from_arg_matches(matches)?;
        Ok(fields)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for (name, kind, _, _) in FIELDS {
            if let Some(values) = matches.get_many::<String>(name) {
                let texts: Vec<&str> = values.map(String::as_str).collect();
                self.0.insert(name.replace('-', "_"), value(kind, &texts));
            }
        }
        Ok(())
    }
}

fn value(kind: Kind, texts: &[&str]) -> Value {
    match (kind, texts) {
        (_, ["null"]) => Value::Null,
        (Kind::List, _) => texts.iter().copied().map(Value::from).collect(),
        (Kind::Json, [text]) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(*text)),
        _ => Value::from(texts.concat()),
    }
}
