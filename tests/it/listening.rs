//! A thread that hears what is logged and traced in it, while other tests run in others.

use tracing::subscriber::{DefaultGuard, NoSubscriber, set_default};
use tracing::{Dispatch, Subscriber};

/// Hears until it is dropped.
pub(crate) struct Listening {
    _here: DefaultGuard,
    _another: Dispatch,
}

/// What comes by in this thread goes to `subscriber`.
///
/// Where there is one subscriber in the process, `tracing` takes the thread that first comes by a place to speak for all
/// of them: if nobody listens in that one, the place stays silent in every thread. So there are two.
pub(crate) fn listen(subscriber: impl Subscriber + Send + Sync) -> Listening {
    let another = Dispatch::new(NoSubscriber::default());
    Listening { _here: set_default(subscriber), _another: another }
}
