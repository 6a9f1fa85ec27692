//! A holder in memory that a test plays: it sees each call as it comes and says how it ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use queue_client::wire::{
    Blocked, Code, GrantReport, GrantVerdict, LeaseReport, LeaseVerdict, Message, Problem, Reason, Reply,
    Status, TakenOver, Takeover,
};
use queue_client::{Builder, CallError, Calling, Endpoint, QueueClient, Semaphore, Transport};
use tokio::sync::{mpsc, oneshot};

type Answer = Result<Reply, CallError>;

struct Script {
    calls: mpsc::UnboundedSender<Asked>,
    takeovers: mpsc::UnboundedSender<AskedTakeover>,
}

impl Transport for Script {
    fn call<'a>(&'a self, key: &'a str, endpoint: Endpoint, message: &'a Message) -> Calling<'a> {
        let (answer, answered) = oneshot::channel();
        self.calls.send(Asked { key: key.to_owned(), endpoint, message: message.clone(), answer }).unwrap();
        Box::pin(async { answered.await.unwrap_or_else(|_| Err(CallError::Unreachable("dropped".into()))) })
    }

    fn take_over<'a>(&'a self, client_id: &'a str, takeover: &'a Takeover) -> Calling<'a, TakenOver> {
        let (answer, answered) = oneshot::channel();
        let asked = AskedTakeover { client_id: client_id.to_owned(), takeover: takeover.clone(), answer };
        self.takeovers.send(asked).unwrap();
        Box::pin(async { answered.await.unwrap_or_else(|_| Err(CallError::Unreachable("dropped".into()))) })
    }
}

/// A takeover that waits for its answer.
pub(crate) struct AskedTakeover {
    pub(crate) client_id: String,
    pub(crate) takeover: Takeover,
    answer: oneshot::Sender<Result<TakenOver, CallError>>,
}

impl AskedTakeover {
    pub(crate) fn answer(self, answer: Result<TakenOver, CallError>) {
        let _ = self.answer.send(answer);
    }
}

/// What the holder of these tests gives a lease.
pub(crate) const TTL_MS: u64 = 4_000;

/// A call that waits for its answer.
pub(crate) struct Asked {
    pub(crate) key: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) message: Message,
    answer: oneshot::Sender<Answer>,
}

impl Asked {
    pub(crate) fn answer(self, answer: Answer) {
        // Nobody listens to a call that was given up.
        let _ = self.answer.send(answer);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// Groups and counts.
    pub(crate) fn demand(&self) -> Vec<(&str, u64)> {
        self.message.demand.iter().map(|entry| (entry.group.as_str(), entry.count)).collect()
    }

    /// Marks by block.
    pub(crate) fn reports(&self) -> Vec<(&str, u64, u64)> {
        let reports = self.message.grants.as_deref().unwrap_or_default();
        reports
            .iter()
            .map(|GrantReport { id, claimed, released }| (id.as_str(), *claimed, *released))
            .collect()
    }

    /// Drawn, released, stopped by lease.
    pub(crate) fn leases(&self) -> Vec<(&str, u64, u64, bool)> {
        let reports = self.message.leases.as_deref().unwrap_or_default();
        reports
            .iter()
            .map(|LeaseReport { id, drawn, released, stopped }| (id.as_str(), *drawn, *released, *stopped))
            .collect()
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.message.wait_ms > 0
    }
}

pub(crate) struct Holder {
    calls: mpsc::UnboundedReceiver<Asked>,
    takeovers: mpsc::UnboundedReceiver<AskedTakeover>,
    pub(crate) round: u64,
}

pub(crate) fn client() -> (QueueClient, Semaphore, Holder) {
    let (client, holder) = client_of(QueueClient::builder().client_id("worker"));
    let semaphore = client.semaphore("account:42");
    (client, semaphore, holder)
}

pub(crate) fn client_of(builder: Builder) -> (QueueClient, Holder) {
    let (calls, asked) = mpsc::unbounded_channel();
    let (takeovers, asked_takeovers) = mpsc::unbounded_channel();
    let client = builder.silent().transport(Script { calls, takeovers }).build().unwrap();
    (client, Holder { calls: asked, takeovers: asked_takeovers, round: 0 })
}

impl Holder {
    pub(crate) async fn takeover(&mut self) -> AskedTakeover {
        let hang = Duration::from_secs(24 * 3600);
        let asked = tokio::time::timeout(hang, self.takeovers.recv()).await;
        asked.expect("the client takes over").unwrap()
    }

    /// The next call, which must be about this key.
    pub(crate) async fn expect_of(&mut self, key: &str, endpoint: Endpoint) -> Asked {
        let asked = self.expect(endpoint).await;
        assert_eq!(asked.key, key, "{:?}", asked.message);
        asked
    }

    pub(crate) async fn next(&mut self) -> Asked {
        let hang = Duration::from_secs(24 * 3600);
        tokio::time::timeout(hang, self.calls.recv()).await.expect("the client says something").unwrap()
    }

    pub(crate) async fn expect(&mut self, endpoint: Endpoint) -> Asked {
        let asked = self.next().await;
        assert_eq!(asked.endpoint, endpoint, "{:?}", asked.message);
        asked
    }

    /// Takes calls until a request states `count` of one group, passing over those it supersedes.
    pub(crate) async fn request_of(&mut self, count: u64) -> Asked {
        loop {
            let asked = self.expect(Endpoint::Request).await;
            if asked.demand().iter().map(|(_, count)| count).sum::<u64>() == count {
                return asked;
            }
            asked.answer(Err(CallError::Superseded));
        }
    }

    /// A grant of a new round.
    pub(crate) fn grant(&mut self, id: &str, group: &str, permits: u64) -> Answer {
        self.round += 1;
        let open = verdict(id, self.round, group, (permits, 0, 0), Status::Active);
        Ok(Reply { v: 1, round: self.round, grants: vec![open], ..Reply::default() })
    }

    /// Leases of a new round, by id, group and permits.
    pub(crate) fn lend(&mut self, leases: &[(&str, &str, u64)]) -> Answer {
        self.round += 1;
        let open = leases.iter().map(|(id, group, permits)| LeaseVerdict {
            round: Some(self.round),
            group: Some((*group).to_owned()),
            permits: Some(*permits),
            drawn: Some(0),
            released: Some(0),
            ttl_ms: Some(TTL_MS),
            ..lease(id, Status::Active)
        });
        Ok(Reply { v: 1, round: self.round, leases: open.collect(), ..Reply::default() })
    }

    /// Takes in what a call reports of leases: what is stopped with nothing running is settled, what is stopped is
    /// retired, what is not is active for another ttl.
    pub(crate) fn hear(&self, asked: &Asked) -> Reply {
        let verdicts = asked.leases().into_iter().map(|(id, drawn, released, stopped)| {
            let status = match (stopped, drawn == released) {
                (true, true) => Status::Settled,
                (true, false) => Status::Retired,
                (false, _) => Status::Active,
            };
            let ttl_ms = Some(if stopped { 0 } else { TTL_MS });
            LeaseVerdict { drawn: Some(drawn), released: Some(released), ttl_ms, ..lease(id, status) }
        });
        Reply { v: 1, round: self.round, leases: verdicts.collect(), ..Reply::default() }
    }

    /// A sync that the client wants parked.
    pub(crate) async fn parked(&mut self) -> Asked {
        let asked = self.expect(Endpoint::Sync).await;
        assert!(asked.is_parked(), "{:?}", asked.message);
        asked
    }

    /// A sync that is to be answered at once.
    pub(crate) async fn plain(&mut self) -> Asked {
        let asked = self.expect(Endpoint::Sync).await;
        assert!(!asked.is_parked(), "{:?}", asked.message);
        asked
    }

    /// Any sync.
    pub(crate) async fn plain_or_parked(&mut self) -> Asked {
        self.expect(Endpoint::Sync).await
    }

    pub(crate) fn nothing(&mut self, lacking: u64) -> Answer {
        self.round += 1;
        let blocked = Blocked { group: String::new(), count: lacking, reason: Reason::Limit };
        let blocked = if lacking > 0 { vec![blocked] } else { Vec::new() };
        Ok(Reply { v: 1, round: self.round, blocked, ..Reply::default() })
    }

    /// Confirms what a call reports.
    pub(crate) fn confirm(&self, asked: &Asked) -> Answer {
        let verdicts = asked.reports().into_iter().map(|(id, claimed, released)| {
            let status = if claimed == released { Status::Settled } else { Status::Active };
            verdict(id, self.round, "", (claimed, claimed, released), status)
        });
        Ok(Reply { v: 1, round: self.round, grants: verdicts.collect(), ..Reply::default() })
    }

    pub(crate) async fn confirm_next(&mut self) {
        let asked = self.expect(Endpoint::Sync).await;
        let confirmed = self.confirm(&asked);
        asked.answer(confirmed);
    }

    /// All that the client can do now is done.
    pub(crate) async fn rests(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Whether the client has said nothing more, when all that it can do now is done.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        self.rests().await;
        self.calls.try_recv().is_err()
    }
}

pub(crate) fn lease(id: &str, status: Status) -> LeaseVerdict {
    LeaseVerdict {
        id: id.to_owned(),
        status,
        round: None,
        group: None,
        permits: None,
        drawn: None,
        released: None,
        ttl_ms: None,
    }
}

fn verdict(id: &str, round: u64, group: &str, marks: (u64, u64, u64), status: Status) -> GrantVerdict {
    GrantVerdict {
        id: id.to_owned(),
        status,
        round: Some(round),
        group: Some(group.to_owned()),
        permits: Some(marks.0),
        claimed: Some(marks.1),
        released: Some(marks.2),
        claim_within_ms: Some(10_000),
    }
}

pub(crate) fn problem(status: u16, code: Code) -> Box<Problem> {
    Box::new(Problem {
        kind: "about:blank".to_owned(),
        title: "No".to_owned(),
        status,
        code,
        detail: "not like this".to_owned(),
        field: None,
        generation: None,
        request_id: None,
    })
}

/// Who got a permit, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    pub(crate) fn add(&self, who: &'static str) {
        self.0.lock().unwrap().push(who);
    }

    pub(crate) fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

/// Polls once; true while it waits.
pub(crate) async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}
